"""Large worlds on one machine: a few ranks of a simulated job run alone, and their schedules are compared."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Any, Final

from forkpoint.rehearse.model import RunMode, RunOrder
from forkpoint.rehearse.outcome import own_errors
from forkpoint.rehearse.run import Ended, RehearsedJob, RunLimits, run_job
from forkpoint.rehearse.workspace import workspace

SCHEMA: Final = "forkpoint.schedules/1"
_NODE: Final = 8
"""Ranks per node: roles often change at node boundaries."""


@dataclass(frozen=True, slots=True)
class ScheduledCall:
    op: str
    group: tuple[int, ...]
    sizes: str
    site: str


@dataclass(frozen=True, slots=True)
class Schedule:
    rank: int
    calls: tuple[ScheduledCall, ...]
    depends: tuple[str, ...]
    """Lines that read values which come from other ranks in a real job."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The first call in a group that differs between two of its members."""

    ranks: tuple[int, int]
    group: tuple[int, ...]
    number: int
    calls: tuple[ScheduledCall | None, ScheduledCall | None]
    """None: this rank makes no further call."""


@dataclass(frozen=True, slots=True)
class Pretended:
    world: int
    schedules: tuple[Schedule, ...]
    differences: tuple[Difference, ...]
    failed: str
    """Why the script cannot run this way; "" if it can."""


def sample_ranks(world: int) -> tuple[int, ...]:
    """The first and last ranks, both sides of a node boundary, and the middle."""
    wanted = (0, 1, _NODE - 1, _NODE, world // 2 - 1, world // 2, world - 2, world - 1)
    return tuple(sorted({rank for rank in wanted if 0 <= rank < world}))


def run_pretended(job: RehearsedJob, world: int, ranks: Sequence[int], limit_s: float) -> Pretended:
    with workspace(job.program.folder) as place:
        order = RunOrder(
            RunMode.FAKE, str(place.told), (str(place.work),), cpu=job.cpu, world=world, ranks=tuple(ranks)
        )
        ended = run_job(job, order, place, RunLimits(limit_s, limit_s, steps_after=False))
        schedules = tuple(_read(place.told, rank) for rank in ranks)
        failed = ""
        if any(ended.codes.values()):
            failed = f"the script fails with a fake process group ({_tell_first(ended, place.logs, ranks)})"
        elif ended.why != "all ended":
            failed = f"not all ranks ended within {limit_s:.0f} s: they may wait for values from other ranks"
        elif not any(schedule.calls for schedule in schedules):
            failed = "no collective was seen"
    return Pretended(world, schedules, tuple(compare(schedules)), failed)


def _tell_first(ended: Ended, logs: Path, ranks: Sequence[int]) -> str:
    for place, error in own_errors(ended, logs).items():
        return f"rank {ranks[place]}: {error}"
    return f"exit codes {dict(ended.codes)}"


def compare(schedules: Sequence[Schedule]) -> Iterator[Difference]:
    """For each group, the first call in which two of its members differ."""
    groups = sorted({call.group for schedule in schedules for call in schedule.calls})
    for group in groups:
        members = [schedule for schedule in schedules if schedule.rank in group]
        for one, other in combinations(members, 2):
            found = _first_difference(one, other, group)
            if found is not None:
                yield found
                break


def _first_difference(one: Schedule, other: Schedule, group: tuple[int, ...]) -> Difference | None:
    mine, theirs = ([call for call in schedule.calls if call.group == group] for schedule in (one, other))
    for number, (here, there) in enumerate(zip_longest(mine, theirs), 1):
        if here is None or there is None or (here.op, here.sizes) != (there.op, there.sizes):
            return Difference((one.rank, other.rank), group, number, (here, there))
    return None


def _read(folder: Path, rank: int) -> Schedule:
    try:
        lines = (folder / f"calls_rank_{rank}.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return Schedule(rank, (), ())
    told: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("}")]
    calls = (
        ScheduledCall(t["op"], tuple(t["group"]), json.dumps(t["sizes"]), t["site"])
        for t in told
        if t["kind"] == "call"
    )
    return Schedule(rank, tuple(calls), tuple(dict.fromkeys(t["site"] for t in told if t["kind"] == "read")))


# ------------------------------------------------------------------------------------------------------------- telling


def render_pretended(told: Pretended) -> str:
    ran = ", ".join(str(schedule.rank) for schedule in told.schedules)
    lines = [f"a job of {told.world} ranks, of which {ran} ran, each alone with a fake process group"]
    if told.failed:
        return "\n".join([*lines, f"this does not work for this script: {told.failed}"])
    for difference in told.differences:
        one, other = difference.ranks
        lines.append(
            f"call {difference.number} in the group of {len(difference.group)} ranks {_few(difference.group)}:"
        )
        lines += [f"  rank {rank}: {_say(call)}" for rank, call in zip((one, other), difference.calls, strict=True)]
    if not told.differences:
        counts = sorted({len(schedule.calls) for schedule in told.schedules})
        lines.append(f"their schedules agree: {' or '.join(map(str, counts))} calls each, in every group they share")
    depends = sorted({site for schedule in told.schedules for site in schedule.depends})
    if depends:
        lines.append(
            f"values from other ranks, which are fake here, are read at {', '.join(depends)}: what follows from them is unknown"
        )
    return "\n".join(lines)


def render_pretended_json(told: Pretended) -> str:
    value = {
        "schema": SCHEMA,
        "world": told.world,
        "ranks": [s.rank for s in told.schedules],
        "calls": {str(s.rank): len(s.calls) for s in told.schedules},
        "failed": told.failed or None,
        "depends": sorted({site for s in told.schedules for site in s.depends}),
        "differences": [
            {
                "ranks": d.ranks,
                "group": d.group,
                "call": d.number,
                "did": [
                    None if c is None else {"op": c.op, "sizes": json.loads(c.sizes), "site": c.site} for c in d.calls
                ],
            }
            for d in told.differences
        ],
    }
    return json.dumps(value, indent=2)


def _say(call: ScheduledCall | None) -> str:
    if call is None:
        return "makes no further call"
    return f"{call.op} {call.sizes}" + (f" from {call.site}" if call.site else "")


def _few(group: Sequence[int]) -> str:
    shown = ", ".join(map(str, group[:4]))
    return f"({shown}, ...)" if len(group) > 4 else f"({shown})"
