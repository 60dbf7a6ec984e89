"""Where evidence of a running job comes from: one file each. None of them signals, stops or changes the job."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from forkpoint.model.log import LogEvent
from forkpoint.model.ranks import name_ranks
from forkpoint.watch.spool import Spool


@dataclass(frozen=True, slots=True)
class Dump:
    path: str
    seen: float
    """When this content was first seen, on this process's own clock (monotonic): an old file shows no new moment."""
    written: float | None
    """When it was written, in seconds since 1970, where that may be compared with the times in it."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What one source got in one look."""

    dumps: tuple[Dump, ...] = ()
    stacks: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    """Logs and other texts, where they lie."""
    world_size: int | None = None
    """Where the source states it."""
    has_grown: bool = False
    """Logs were written to since the look before."""
    said: tuple[LogEvent, ...] = ()
    """What the logs say in the lines that came since."""
    notes: tuple[str, ...] = ()


class LiveSource(Protocol):
    @property
    def name(self) -> str: ...

    def gather(self, spool: Spool, *, stacks: bool) -> Gathered:
        """`stacks`: also where each rank stands. Asked for only when nothing moves, since it costs the job more."""
        ...


def tell_missing(missing: Iterable[tuple[int, str, str]]) -> tuple[str, ...]:
    """Ranks, addresses and reasons -> a note per reason: a thousand ranks that are gone are one line."""
    by_reason: dict[str, list[tuple[int, str]]] = {}
    for rank, address, why in missing:
        by_reason.setdefault(why, []).append((rank, address))
    return tuple(
        f"{name_ranks(r for r, _ in ranks)}{f' at {ranks[0][1]}' if len(ranks) == 1 else ''}: {why}"
        for why, ranks in sorted(by_reason.items())
    )
