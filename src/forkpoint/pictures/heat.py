"""Tracks -> HeatMap. Blocks that ranks share are looked at once, and ranks that did the same share a row, so cost grows
with what ranks did differently.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forkpoint.model.op import Op, OpState
from forkpoint.model.picture import NO_OP, Bytes, CellState, Counts, HeatMap
from forkpoint.model.trace import BLOCK, Ints, Tables, Tokens, Track
from forkpoint.pictures.op_names import OpNames

_CODES = {
    OpState.COMPLETED: CellState.COMPLETED,
    OpState.STARTED: CellState.STARTED,
    OpState.SCHEDULED: CellState.ISSUED,
    OpState.ENTERING: CellState.ISSUED,
    OpState.ABORTED: CellState.ISSUED,
}


@dataclass(frozen=True, slots=True)
class HeatMember:
    """What one rank recorded of an order, and what can be said of the slots after it."""

    track: Track | None
    beyond: CellState


@dataclass(frozen=True, slots=True)
class _Vote:
    usual: Tokens
    """Per column what most called; 0 = nobody recorded it."""
    odd: dict[int, Ints]
    """Block -> the seqs in which it is not what most have."""


def cell_of(op: Op) -> CellState:
    return _CODES[op.state]


def heat_map(
    members: Sequence[HeatMember], columns: range, tables: Tables, ops: OpNames, *, comparable: bool = True
) -> HeatMap:
    """`comparable`: members must agree slot by slot. The ends of a channel must only where both counted from the first."""
    vote = _take_vote([m.track for m in members if m.track], columns, tables)
    odd = vote.odd if comparable else {}
    numbers: dict[object, int] = {}
    lengths: list[Counts] = []
    codes: list[Bytes] = []
    row_of = np.zeros(len(members), np.int32)
    for index, member in enumerate(members):
        key = _row_key(member)
        if key not in numbers:
            numbers[key] = len(numbers)
            length, code = _runs(_row(member, columns, tables, odd))
            lengths.append(length)
            codes.append(code)
        row_of[index] = numbers[key]
    return HeatMap(
        row_of=row_of,
        row_start=np.cumsum([0, *map(len, codes)], dtype=np.int32),
        run_length=np.concatenate(lengths) if lengths else np.zeros(0, np.uint32),
        run_code=np.concatenate(codes) if codes else np.zeros(0, np.uint8),
        op=_ops(vote.usual, tables, ops),
    )


def _row_key(member: HeatMember) -> object:
    """Members with equal keys have equal rows."""
    track = member.track
    if track is None:
        return member.beyond
    frontier = [op and (op.seq, op.state) for op in (track.last_done, track.first_active, track.last)]
    return member.beyond, track.blocks, *frontier


def _row(member: HeatMember, columns: range, tables: Tables, odd: dict[int, Ints]) -> Bytes:
    row = np.full(len(columns), member.beyond, np.uint8)
    track = member.track
    if track is None:
        return row
    done = track.last_done.seq if track.last_done else track.first_seq - 1
    _fill(row, columns, track.first_seq, done, CellState.COMPLETED)
    _fill(row, columns, done + 1, track.last_seq, CellState.ISSUED)
    for op in (track.first_active, track.last):
        if op is not None:
            _fill(row, columns, op.seq, op.seq, cell_of(op))
    row[: max(0, track.first_seq - columns.start)] = CellState.UNKNOWN
    if track.count < track.last_seq - track.first_seq + 1:
        row[_holes(track, columns, tables)] = CellState.UNKNOWN
    for key in track.blocks:
        if key in odd:
            row[odd[key] - columns.start] = CellState.DIFFERS
    return row


def _fill(row: Bytes, columns: range, first: int, last: int, state: CellState) -> None:
    row[max(0, first - columns.start) : max(0, last + 1 - columns.start)] = state


def _holes(track: Track, columns: range, tables: Tables) -> NDArray[np.bool_]:
    """Columns inside the track for which it has no op: a dump of active ops only."""
    inside = np.arange(columns.start, columns.stop)
    held = np.concatenate([tables.blocks[key].seqs for key in track.blocks])
    return (inside >= track.first_seq) & (inside <= track.last_seq) & ~np.isin(inside, held)


def _runs(row: Bytes) -> tuple[Counts, Bytes]:
    starts = np.flatnonzero(np.diff(row, prepend=row[:1] ^ 255))
    return np.diff(starts, append=len(row)).astype(np.uint32), row[starts]


def _take_vote(tracks: Sequence[Track], columns: range, tables: Tables) -> _Vote:
    """Every block votes once, with as many voices as ranks hold it."""
    voices: dict[int, Counter[int]] = {}
    wanted = range(columns.start // BLOCK, (columns.stop - 1) // BLOCK + 1)
    for blocks, ranks in Counter(track.blocks for track in tracks).items():
        for key in blocks:
            number = int(tables.blocks[key].seqs[0]) // BLOCK
            if number in wanted:
                voices.setdefault(number, Counter())[key] += ranks
    usual = np.zeros(len(columns), np.uint64)
    odd: dict[int, Ints] = {}
    for number, by_key in voices.items():
        first = number * BLOCK
        grid = np.zeros((len(by_key), BLOCK), np.uint64)
        for row, key in enumerate(by_key):
            block = tables.blocks[key]
            grid[row, block.seqs - first] = block.match
        inside = slice(max(0, columns.start - first), min(BLOCK, columns.stop - first))
        most, disputed = _majority(grid, np.array(list(by_key.values()), np.int64))
        usual[inside.start + first - columns.start : inside.stop + first - columns.start] = most[inside]
        differs = disputed & (grid != 0)
        differs[:, : inside.start] = False
        differs[:, inside.stop :] = False
        for row, key in enumerate(by_key):
            if differs[row].any():
                odd[key] = np.flatnonzero(differs[row]) + first
    return _Vote(usual, odd)


def _majority(grid: Tokens, voices: Ints) -> tuple[Tokens, NDArray[np.bool_]]:
    """Per column the token with most voices, and which cells are not it. In a tie none of them is."""
    usual = grid.max(axis=0)
    lowest = np.where(grid == 0, np.iinfo(np.uint64).max, grid).min(axis=0)
    disputed = np.zeros(grid.shape, np.bool_)
    for column in np.flatnonzero((usual != 0) & (lowest != usual)):
        tokens, which = np.unique(grid[:, column], return_inverse=True)
        counts = np.bincount(which, weights=voices)
        counts[tokens == 0] = 0
        best = counts == counts.max()
        usual[column] = tokens[best][0]
        disputed[:, column] = True if best.sum() > 1 else grid[:, column] != usual[column]
    return usual, disputed


def _ops(usual: Tokens, tables: Tables, ops: OpNames) -> Bytes:
    tokens, which = np.unique(usual, return_inverse=True)
    numbers = [ops.number(tables.signatures[int(t)][0].op) if t else NO_OP for t in tokens]
    return np.array(numbers, np.uint8)[which] if len(usual) else np.zeros(0, np.uint8)
