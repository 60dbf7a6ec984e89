"""Answers -> a folder as a person would hand it over, with one file more: what the guards know of each rank."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from forkpoint.guard.answer import Answer
from forkpoint.guard.beat import RankState
from forkpoint.guard.rank_side import leave_files
from forkpoint.guard.summary import Summary

SCHEMA = "forkpoint.ranks/1"


def write_evidence(folder: Path, answers: Sequence[Answer], summary: Summary, *, stalled: bool, moving: bool) -> None:
    """`moving`: the job goes on, so where its ranks stand at this moment says nothing and is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for answer in answers:
        leave_files(answer, folder)
        if moving:
            (folder / f"stacks_rank_{answer.rank}.txt").unlink(missing_ok=True)
    (folder / "ranks.json").write_text(json.dumps(_describe(answers, summary, stalled=stalled), indent=1))


def _describe(answers: Sequence[Answer], summary: Summary, *, stalled: bool) -> dict[str, object]:
    groups = {(name, ranks): desc for answer in answers for name, desc, ranks in answer.groups}
    odd = {o.rank: o for o in summary.odd}
    silent = [rank for rank in summary.silent if rank not in odd]
    return {
        "schema": SCHEMA,
        "taken": round(time.time(), 3),
        "world_size": max((answer.world_size for answer in answers), default=0),
        "still_s": summary.still_s if summary.still_s < float("inf") else None,
        "stalled": stalled,
        "ranks": [{"rank": a.rank, "host": a.host, "pid": a.pid, "state": RankState.RUNNING} for a in answers]
        + [{"rank": o.rank, "state": o.state, "says": o.says} for o in odd.values()]
        + [{"rank": rank, "state": "silent"} for rank in silent],
        "groups": [{"name": name, "desc": desc, "ranks": ranks} for (name, ranks), desc in sorted(groups.items())],
        "steps": [
            {"group": group, "step": step, "rank": answer.rank, "calls": calls}
            for answer in answers
            for step, counts in answer.steps.items()
            for group, calls in counts.items()
        ],
    }
