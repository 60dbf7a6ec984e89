"""One set of ranks compares what all of them have: a few numbers if all is equal, and a classification if not."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import timedelta
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from forkpoint.model.world import name_ranks
from forkpoint.replicas.checksums import checksums
from forkpoint.replicas.items import Item, Ranks, digest, layout_number
from forkpoint.replicas.report import Kind, Mismatch, What

# ---------------------------------------------------------------------------------------------------------------------
# Numbers are exchanged over a separate group, so that the job's communicators are not touched.

_PARTS = 1 << 20
"""Numbers sent in one call."""

_groups: WeakKeyDictionary[dist.ProcessGroup, dict[tuple[Ranks, timedelta], dist.ProcessGroup]] = WeakKeyDictionary()


class Exchange:
    """Over gloo: the numbers are needed on the host, and a hanging GPU must not hide a difference."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout = timedelta(seconds=timeout_s)

    def gather(self, ranks: Ranks, numbers: Sequence[int]) -> list[list[int]]:
        """From all members, in the order of `ranks`. Each sends the same number of values."""
        group = self._group(ranks)
        gathered: list[list[int]] = [[] for _ in ranks]
        for first in range(0, len(numbers), _PARTS):
            own = torch.tensor(numbers[first : first + _PARTS], dtype=torch.int64, device="cpu")
            parts = [torch.empty_like(own) for _ in ranks]
            dist.all_gather(parts, own, group=group)
            for row, part in zip(gathered, parts, strict=True):
                row.extend(part.tolist())
        return gathered

    def gather_uneven(self, ranks: Ranks, numbers: Sequence[int]) -> list[list[int]]:
        """For members that may have different numbers of values."""
        counts = [count for (count,) in self.gather(ranks, [len(numbers)])]
        filled = [*numbers, *[0] * (max(counts) - len(numbers))]
        return [row[:count] for row, count in zip(self.gather(ranks, filled), counts, strict=True)]

    def _group(self, ranks: Ranks) -> dist.ProcessGroup:
        """Created by its members on first use: every rank visits its sets in the same order.

        Kept for the life of the job: gloo would reuse the addresses of a destroyed group.
        """
        world = dist.group.WORLD
        assert world is not None
        known = _groups.setdefault(world, {})
        if (ranks, self._timeout) not in known:
            group = dist.new_group(
                list(ranks),
                timeout=self._timeout,
                backend="gloo",
                use_local_synchronization=len(ranks) < world.size(),
                group_desc="forkpoint replicas",
            )
            assert isinstance(group, dist.ProcessGroup)  # this rank is a member
            known[ranks, self._timeout] = group
        return known[ranks, self._timeout]


def majority(values: Sequence[Hashable]) -> Hashable | None:
    """The value that more than half of all have."""
    value, count = Counter(values).most_common(1)[0]
    return value if 2 * count > len(values) else None


def odd_ranks(ranks: Sequence[int], values: Sequence[Hashable]) -> tuple[int, ...]:
    """The ranks that differ from the majority; both of two, since neither can be trusted; none without a majority."""
    most = majority(values)
    if most is None:
        return tuple(ranks) if len(ranks) == 2 else ()
    return tuple(rank for rank, value in zip(ranks, values, strict=True) if value != most)


# ---------------------------------------------------------------------------------------------------------------------
# From what the members of a group exchanged to mismatches: software causes first, then suspected hardware.
#
# Pure functions: every member has the same input and gets the same result.

_LOCAL = 4
"""If fewer than one piece in this many differs, the difference is local."""
_MOST = 2
"""If more than one tensor in this many differs, the difference is everywhere."""
_FEW_TENSORS = 4
"""In a model with fewer tensors, 'most of them' means nothing."""


_MAY_BE_MEANT = {
    What.SCALAR: "a number that was declared equal is not: it was not reduced, or was computed from unequal values",
    What.BUFFER: "buffers may differ by design; if this one may, name it in may_differ",
}


@dataclass(frozen=True, slots=True)
class Heading:
    """What every member sends first, in this order."""

    step: int
    updates: int
    """How often the optimizers have stepped."""
    layout: int
    count: int
    last_equal: int
    """Step of the last check without a mismatch; -1: none yet."""
    digest: int
    """A digest of all checksums."""


@dataclass(frozen=True, slots=True)
class Row:
    """One compared value across the members, in the order of the group."""

    what: What
    name: str
    now: tuple[int, ...]
    earlier: tuple[tuple[int | None, ...], ...]
    """The same value at the last check and one step ago, as far as each member remembers."""
    pieces: tuple[tuple[int, ...], ...] = ()
    """Checksums of its pieces by member; empty if not requested."""


def headings_differ(ranks: Sequence[int], headings: Sequence[Heading]) -> Mismatch | None:
    """If steps or numbers of updates differ, nothing else needs to be compared."""
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
    """`layouts`: a number per tensor, in order. `own`: this rank's layouts as text."""
    place = next(
        (i for i, entries in enumerate(zip(*layouts, strict=False)) if len(set(entries)) > 1), min(map(len, layouts))
    )
    here = f"here it is {own[place]}" if place < len(own) else "here there is none"
    why = f"names, shapes, dtypes or order differ from tensor {place} on ({here})"
    values = tuple(one.layout for one in headings)
    return Mismatch(What.LAYOUT, None, tuple(ranks), values, odd_ranks(ranks, values), Kind.SOFTWARE, why)


def classify(ranks: Sequence[int], rows: Sequence[Row], compared: int, last_equal: int) -> list[Mismatch]:
    """Mismatches of values, if counters are equal. `rows`: those that differ, of `compared`."""
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
    """Why it may not be a device: a hardware fault hits one rank and a few words; a different update changes a whole tensor."""
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
    """Why the ranks cannot have executed the same."""
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
    """How many of its pieces differ."""
    return sum(1 for piece in zip(*row.pieces, strict=True) if len(set(piece)) > 1)


def _stale_ranks(ranks: Sequence[int], row: Row) -> tuple[int, ...]:
    """The minority, if it still has an earlier value that all had, while the others have moved on."""
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


# ---------------------------------------------------------------------------------------------------------------------
# The comparison: a few numbers if all is equal, everything else only if not.

_PIECES = 256
"""Pieces of a differing tensor, to see how much of it differs."""
_LOOKED_INTO = 16
"""At most this many tensors are compared by pieces; the others are judged as a whole."""
_UNKNOWN = 0

Key = tuple[What, str, Ranks]


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """How far this rank has come, and its earlier values."""

    step: int
    updates: int
    last_equal: int | None
    earlier: tuple[Mapping[Key, int], ...]
    """At the last check, and one step ago."""


def compare(
    exchange: Exchange, ranks: Ranks, items: Sequence[Item], numbers: Sequence[int], standing: ReplicaProgress
) -> list[Mismatch]:
    """Empty if everything is equal. All members get the same answer."""
    layout = [layout_number(item) for item in items]
    last_equal = -1 if standing.last_equal is None else standing.last_equal
    own = Heading(standing.step, standing.updates, digest(layout), len(items), last_equal, digest(numbers))
    headings = [Heading(*row) for row in exchange.gather(ranks, astuple(own))]
    if len({(one.step, one.updates, one.layout, one.digest) for one in headings}) == 1:
        return []
    if found := headings_differ(ranks, headings):
        return [found]
    if len({one.layout for one in headings}) > 1:
        layouts = [tuple(row) for row in exchange.gather_uneven(ranks, layout)]
        return [layouts_differ(ranks, headings, layouts, [item.layout for item in items])]
    rows = _rows_that_differ(exchange, ranks, items, numbers, standing)
    return classify(ranks, rows, len(items), min(one.last_equal for one in headings))


def _rows_that_differ(
    exchange: Exchange, ranks: Ranks, items: Sequence[Item], numbers: Sequence[int], standing: ReplicaProgress
) -> list[Row]:
    memories = [[known.get(item.key, _UNKNOWN) for item in items] for known in standing.earlier]
    told = [exchange.gather(ranks, values) for values in (numbers, *memories)]
    columns = [list(zip(*members, strict=True)) for members in told]
    differing = [place for place, now in enumerate(columns[0]) if len(set(now)) > 1]
    pieces = _gather_pieces(exchange, ranks, [items[place].tensor for place in differing[:_LOOKED_INTO]])
    return [
        Row(
            items[place].what,
            items[place].name,
            columns[0][place],
            tuple(tuple(value or None for value in column[place]) for column in columns[1:]),
            pieces[number] if number < len(pieces) else (),
        )
        for number, place in enumerate(differing)
    ]


def _gather_pieces(exchange: Exchange, ranks: Ranks, tensors: Sequence[Tensor]) -> list[tuple[tuple[int, ...], ...]]:
    """For each tensor: the checksums of its pieces, by member."""
    cut = [tensor.detach().reshape(-1).tensor_split(max(1, min(_PIECES, tensor.numel()))) for tensor in tensors]
    own = checksums([piece for pieces in cut for piece in pieces]).read()
    told = exchange.gather(ranks, own)
    found: list[tuple[tuple[int, ...], ...]] = []
    first = 0
    for pieces in cut:
        found.append(tuple(tuple(member[first : first + len(pieces)]) for member in told))
        first += len(pieces)
    return found
