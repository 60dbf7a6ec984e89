"""One set of ranks compares what they all hold: a few numbers where all is well, everything else only in trouble."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

from torch import Tensor

from forkpoint.replicas.checksums import checksums
from forkpoint.replicas.classify import Heading, Row, classify, headings_differ, layouts_differ
from forkpoint.replicas.exchange import Exchange
from forkpoint.replicas.items import Item, Ranks, digest, layout_number
from forkpoint.replicas.report import Mismatch, What

_PIECES = 256
"""Of a tensor that differs, to see how far the difference reaches."""
_LOOKED_INTO = 16
"""Tensors that are cut into pieces. The others are judged without."""
_UNKNOWN = 0

Key = tuple[What, str, Ranks]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where this rank is."""

    step: int
    updates: int
    last_equal: int | None
    earlier: tuple[Mapping[Key, int], ...]
    """What it had at the last check, and a step ago."""


def compare(
    exchange: Exchange, ranks: Ranks, items: Sequence[Item], numbers: Sequence[int], standing: Standing
) -> list[Mismatch]:
    """Empty: everything is equal on all of them. All members get the same answer."""
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
    exchange: Exchange, ranks: Ranks, items: Sequence[Item], numbers: Sequence[int], standing: Standing
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
