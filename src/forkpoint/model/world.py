"""The ranks of a job, the groups in which they communicate, and how lists of ranks are printed."""

import json
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct


class ProcessGroup(Struct, frozen=True, order=True):
    """Ranks that communicate with each other. Two groups may share a name; their members distinguish them."""

    name: str
    desc: str
    ranks: tuple[int, ...]
    """Global ranks in group-rank order."""
    declared: bool = True
    """False: no dump states the members; `ranks` are those seen using the group."""

    def __hash__(self) -> int:
        """Uses only a few members: groups have up to 100,000."""
        return hash((self.name, self.desc, len(self.ranks), self.ranks[:2]))

    def is_parallel_to(self, other: "ProcessGroup") -> bool:
        """Of the same kind, with other members, like the rows of a mesh: what one group does, the other does with other ranks.
        Two groups that share members are used for different things, whatever they are called.
        """
        alike = (self.desc, len(self.ranks)) == (other.desc, len(other.ranks))
        return alike and self.declared and other.declared and set(self.ranks).isdisjoint(other.ranks)

    def __str__(self) -> str:
        return self.desc if self.desc and self.desc != "undefined" else f"group {self.name}"


class RankPlace(Struct, frozen=True):
    """Where a rank ran."""

    rank: int
    host: str
    gpu: int | None
    """NVML's number of the GPU, in the container where the rank runs; None if NCCL is too old to print it."""
    bus_id: str
    file: str
    line: int
    pid: int | None = None
    """The process id where the rank runs (in its container); None if files disagree."""


def format_ranks(ranks: Iterable[int], max_ranges: int | None = None) -> str:
    """`0-6,8,10-1023`; after `max_ranges` ranges only the total follows: `0,2,4,... (512 ranks)`."""
    ordered = sorted(set(ranks))
    ranges = [str(first) if first == last else f"{first}-{last}" for first, last in _ranges(ordered)]
    if max_ranges is None or len(ranges) <= max_ranges:
        return ",".join(ranges)
    return f"{','.join(ranges[:max_ranges])},... ({len(ordered)} ranks)"


def name_ranks(ranks: Iterable[int], max_ranges: int = 8) -> str:
    """`rank 3`, `ranks 0-6,8`."""
    members = set(ranks)
    return f"{'rank' if len(members) == 1 else 'ranks'} {format_ranks(members, max_ranges)}"


def _ranges(ordered: list[int]) -> Iterator[tuple[int, int]]:
    if not ordered:
        return
    first = last = ordered[0]
    for rank in ordered[1:]:
        if rank != last + 1:
            yield first, last
            first = rank
        last = rank
    yield first, last


# ---------------------------------------------------------------------------------------------------------------------
# `ranks.json`: what observers of a live job (guard, watch, controller) put beside the dumps. `evidence/rank_states.py`
# reads it.

RANKS_SCHEMA: Final = "forkpoint.ranks/1"


class KnownRank(Struct, frozen=True):
    rank: int
    state: str
    """`running`, `finished`, `raised`, `gone`, `stopped` or `silent`."""
    says: str = ""
    """The traceback it ended with, or who observed the state."""


def render_ranks(  # noqa: PLR0913 - a field of the file each
    world_size: int | None,
    still_s: float | None,
    *,
    stalled: bool,
    ranks: Iterable[KnownRank] = (),
    groups: Iterable[ProcessGroup] = (),
    steps: Iterable[tuple[str, int, int, int]] = (),
    exit_code: int | None = None,
) -> str:
    """`still_s`: for how long nothing has progressed; `stalled`: long enough to call it a hang. `steps`: group, step, rank
    and calls so far. `exit_code`: of the command that ran the job on a node, once it has ended.
    """
    document = {
        "schema": RANKS_SCHEMA,
        "world_size": world_size,
        "still_s": still_s,
        "stalled": stalled,
        "exit_code": exit_code,
        "ranks": [{"rank": r.rank, "state": r.state, "says": r.says} for r in ranks],
        "groups": [{"name": g.name, "desc": g.desc, "ranks": g.ranks} for g in groups],
        "steps": [{"group": group, "step": step, "rank": rank, "calls": calls} for group, step, rank, calls in steps],
    }
    return json.dumps(document, indent=1)
