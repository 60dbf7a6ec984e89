"""From what the members of a group told each other to mismatches: software first, then what hardware may have done.

Pure: every member has the same input and comes to the same result.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from forkpoint.model.ranks import name_ranks
from forkpoint.replicas.report import Kind, Mismatch, What
from forkpoint.replicas.vote import majority, odd_ranks

_LOCAL = 4
"""Fewer than one piece in so many differ: the difference is local."""
_MOST = 2
"""More than one tensor in so many: the difference is everywhere."""
_FEW_TENSORS = 4
"""A model of fewer is not 'most of it'."""


_MAY_BE_MEANT = {
    What.SCALAR: "a number given as equal is not: it was not reduced, or was worked out from unequal values",
    What.BUFFER: "buffers may differ by design; if this one may, name it in may_differ",
}


@dataclass(frozen=True, slots=True)
class Heading:
    """What every member says first, in this order."""

    step: int
    updates: int
    """How often the optimizers have stepped."""
    layout: int
    count: int
    last_equal: int
    """Step of the last check without a mismatch; -1: none yet."""
    digest: int
    """Of all checksums."""


@dataclass(frozen=True, slots=True)
class Row:
    """One compared value across the members, in the order of the group."""

    what: What
    name: str
    now: tuple[int, ...]
    earlier: tuple[tuple[int | None, ...], ...]
    """The same at the last check and a step ago, as far as each member remembers."""
    pieces: tuple[tuple[int, ...], ...] = ()
    """Checksums of its pieces by member; empty where they were not asked for."""


def headings_differ(ranks: Sequence[int], headings: Sequence[Heading]) -> Mismatch | None:
    """Ranks that are not at the same step, or have not made as many updates, need no further reading."""
    steps = tuple(one.step for one in headings)
    if len(set(steps)) > 1:
        return _counted(What.STEP, "the ranks are not at the same step", ranks, steps)
    updates = tuple(one.updates for one in headings)
    if len(set(updates)) > 1:
        return _counted(
            What.UPDATE, "optimizer.step() did not run equally often: an update was skipped", ranks, updates
        )
    return None


def layouts_differ(
    ranks: Sequence[int], headings: Sequence[Heading], layouts: Sequence[tuple[int, ...]], own: Sequence[str]
) -> Mismatch:
    """`layouts`: a number per tensor, in order. `own`: the same as text, of this rank."""
    place = next(
        (i for i, entries in enumerate(zip(*layouts, strict=False)) if len(set(entries)) > 1), min(map(len, layouts))
    )
    here = f"here it is {own[place]}" if place < len(own) else "here there is none"
    why = f"names, shapes, dtypes or order differ from tensor {place} on ({here})"
    values = tuple(one.layout for one in headings)
    return Mismatch(What.LAYOUT, None, tuple(ranks), values, odd_ranks(ranks, values), Kind.SOFTWARE, why)


def classify(ranks: Sequence[int], rows: Sequence[Row], compared: int, last_equal: int) -> list[Mismatch]:
    """Mismatches of values, counters being alike. `rows`: those that differ, of `compared`."""
    widespread = len(rows) >= _FEW_TENSORS and len(rows) * _MOST > compared
    return sorted(
        (_mismatch(ranks, row, rows, widespread=widespread, last_equal=last_equal) for row in rows),
        key=lambda found: (_ORDER.index(found.kind), found.what == What.BUFFER),
    )


_ORDER = (Kind.SOFTWARE, Kind.SUSPECTED_HARDWARE, Kind.UNDECIDED)


def _mismatch(ranks: Sequence[int], row: Row, rows: Sequence[Row], *, widespread: bool, last_equal: int) -> Mismatch:
    kind, why = _judge(ranks, row, rows, widespread=widespread, last_equal=last_equal)
    return Mismatch(row.what, row.name, tuple(ranks), row.now, odd_ranks(ranks, row.now), kind, why)


def _judge(
    ranks: Sequence[int], row: Row, rows: Sequence[Row], *, widespread: bool, last_equal: int
) -> tuple[Kind, str]:
    if software := _software(ranks, row, rows):
        return Kind.SOFTWARE, software
    if last_equal < 0 and (widespread or _is_wide(row)):
        return Kind.SOFTWARE, "they have not been equal at any check: another initialisation or checkpoint"
    if open_question := _no_fault_of_one_device(ranks, row):
        return Kind.UNDECIDED, open_question
    if widespread:
        return Kind.UNDECIDED, f"{len(rows)} tensors differ with equal counters: what came first is no longer visible"
    if last_equal < 0 and len(row.pieces[0]) < _LOCAL:
        return Kind.UNDECIDED, "it has not been equal at any check, and is too small to say more"
    return Kind.SUSPECTED_HARDWARE, f"{_extent(row)}, counters are equal, and it is not an earlier state"


def _no_fault_of_one_device(ranks: Sequence[int], row: Row) -> str | None:
    """Why it may be something else: a fault hits one rank and a few words. Another update changes all of a tensor."""
    if row.what in _MAY_BE_MEANT and not (row.what == What.BUFFER and _is_constant(row)):
        return _MAY_BE_MEANT[row.what]
    if len(ranks) > 2 and len(odd_ranks(ranks, row.now)) != 1:
        return "more than one rank differs from the others, or there is no majority: not one device's fault"
    if not row.pieces:
        return "the counters are equal; how far the difference reaches was not examined"
    if _is_wide(row):
        return f"{_extent(row)} with equal counters: its gradient was not reduced the same way, or the update differed"
    if _stale_ranks(ranks, row):
        return f"{_extent(row)}: one of two ranks was not updated there, or the other was changed there"
    return None


def _software(ranks: Sequence[int], row: Row, rows: Sequence[Row]) -> str | None:
    """Why the ranks cannot have done the same."""
    if row.what == What.OPTIMIZER and row.name.endswith(".step"):
        return "the optimizer counts another number of updates: one was skipped or repeated"
    if (setting := _setting(rows)) is not None:
        return f"the ranks do not have the same {setting}"
    stale = _stale_ranks(ranks, row)
    if stale and (len(ranks) > 2 or _is_wide(row)):
        return f"{name_ranks(stale)} still {'has' if len(stale) == 1 else 'have'} an earlier state: not updated"
    return None


def _extent(row: Row) -> str:
    return f"{_differing(row)} of {len(row.pieces[0])} pieces of the tensor differ"


def _is_wide(row: Row) -> bool:
    """More than one piece, and not few of many."""
    return bool(row.pieces) and _differing(row) > 1 and _differing(row) * _LOCAL >= len(row.pieces[0])


def _differing(row: Row) -> int:
    """Of its pieces."""
    return sum(1 for piece in zip(*row.pieces, strict=True) if len(set(piece)) > 1)


def _stale_ranks(ranks: Sequence[int], row: Row) -> tuple[int, ...]:
    """The smaller part of the ranks, if they have what all had earlier, while the others have moved on."""
    found: set[int] = set()
    for earlier in row.earlier:
        before = majority(earlier)
        still = {rank for rank, value in zip(ranks, row.now, strict=True) if value == before}
        if 2 * len(still) < len(ranks) or (len(ranks) == 2 and len(still) == 1):
            found |= still
    return tuple(sorted(found))


def _is_constant(row: Row) -> bool:
    """The majority has not changed it since the last check."""
    most = majority(row.now)
    return most is not None and any(most == majority(earlier) for earlier in row.earlier)


def _setting(rows: Sequence[Row]) -> str | None:
    """A setting of the optimizer that differs explains every other difference."""
    return next((row.name for row in rows if row.what == What.SCALAR and row.name.startswith("optimizer.")), None)


def _counted(what: What, why: str, ranks: Sequence[int], numbers: tuple[int, ...]) -> Mismatch:
    sides = "; ".join(
        f"{name_ranks(rank for rank, n in zip(ranks, numbers, strict=True) if n == number)}: {number}"
        for number in sorted(set(numbers))
    )
    return Mismatch(what, None, tuple(ranks), numbers, odd_ranks(ranks, numbers), Kind.SOFTWARE, f"{why} ({sides})")
