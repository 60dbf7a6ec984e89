"""Answers -> a folder as a person would hand it over, with one file more: what the guards know of each rank."""

from collections.abc import Sequence
from pathlib import Path

from forkpoint.guard.answer import RankAnswer
from forkpoint.guard.rank_side import leave_files
from forkpoint.guard.summary import Summary
from forkpoint.model.ranks_file import KnownRank, render_ranks


def write_evidence(
    folder: Path, answers: Sequence[RankAnswer], summary: Summary, *, stalled: bool, moving: bool
) -> None:
    """`moving`: the job goes on, so where its ranks stand at this moment says nothing and is left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for answer in answers:
        leave_files(answer, folder)
        if moving:
            (folder / f"stacks_rank_{answer.rank}.txt").unlink(missing_ok=True)
    (folder / "ranks.json").write_text(_describe(answers, summary, stalled=stalled))


def _describe(answers: Sequence[RankAnswer], summary: Summary, *, stalled: bool) -> str:
    odd = {o.rank: KnownRank(o.rank, o.state, o.says) for o in summary.odd}
    silent = [KnownRank(rank, "silent") for rank in summary.silent if rank not in odd]
    return render_ranks(
        max((answer.world_size for answer in answers), default=0),
        summary.still_s if summary.still_s < float("inf") else None,
        stalled=stalled,
        ranks=[*odd.values(), *silent],
        groups=sorted({group for answer in answers for group in answer.groups}),
        steps=[
            (group, step, answer.rank, calls)
            for answer in answers
            for step, counts in answer.steps.items()
            for group, calls in counts.items()
        ],
    )
