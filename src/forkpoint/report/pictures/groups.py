"""Groups and channels -> GroupPictures: how far each member got, and a heat map of its ops. Equal ranks share a row."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from forkpoint.judge.facts.log_progress import read_progress
from forkpoint.model.entries import BLOCK, Tables
from forkpoint.model.incident import Divergence, Incident
from forkpoint.model.log import Counters
from forkpoint.model.op import Ints, Op, OpState, Tokens
from forkpoint.model.picture import NO_OP, Bytes, CellState, Counts, GroupPicture, HeatMap, Longs, OpName
from forkpoint.model.timeline import Channel, Gap, GroupTimeline, Timeline
from forkpoint.model.trace import Track
from forkpoint.model.verdict import Verdict
from forkpoint.model.world import ProcessGroup

MAX_OPS = 254
"""One byte per column: 254 is `other`, 255 is no op at all."""
_OTHER = OpName("other", "??")
_LETTERS = {
    "all_reduce": "AR",
    "allreduce_coalesced": "AR",
    "all_reduce_barrier": "BR",
    "barrier": "BR",
    "all_gather": "AG",
    "_all_gather_base": "AG",
    "all_gather_into_tensor_coalesced": "AG",
    "reduce_scatter": "RS",
    "_reduce_scatter_base": "RS",
    "reduce_scatter_tensor_coalesced": "RS",
    "broadcast": "BC",
    "_broadcast_oop": "BC",
    "reduce": "RD",
    "_reduce_oop": "RD",
    "gather": "GA",
    "scatter": "SC",
    "all_to_all": "A2A",
    "all_to_all_single": "A2A",
    "all_to_allv": "A2A",
    "send": "SD",
    "recv": "RV",
    "coalesced": "CO",
}


def letters_of(op: str) -> str:
    """Known letters, else the first two of the name."""
    known = _LETTERS.get(op)
    return known or "".join(c for c in op if c.isascii() and c.isalnum())[:2].upper() or "??"


class OpNames:
    """Numbers the names in order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, op: str) -> int:
        if op not in self._numbers and len(self._numbers) >= MAX_OPS:
            return MAX_OPS
        return self._numbers.setdefault(op, len(self._numbers))

    def names(self) -> tuple[OpName, ...]:
        named = tuple(OpName(op, letters_of(op)) for op in self._numbers)
        return (*named, _OTHER) if len(named) == MAX_OPS else named


# ---------------------------------------------------------------------------------------------------------------------
# Tracks -> HeatMap. Blocks that ranks share are examined once, and ranks that did the same share a row, so the cost grows
# only with what ranks did differently.

_CODES = {
    OpState.COMPLETED: CellState.COMPLETED,
    OpState.STARTED: CellState.STARTED,
    OpState.SCHEDULED: CellState.ISSUED,
    OpState.ENTERING: CellState.ISSUED,
    OpState.ABORTED: CellState.ISSUED,
}


class HeatMember(Struct, frozen=True):
    """What one rank recorded in a group or channel, and the state of the slots after that."""

    track: Track | None
    beyond: CellState


class _Majority(Struct, frozen=True):
    usual: Tokens
    """Per column, the call of most ranks; 0 = not recorded by any."""
    odd: dict[int, Ints]
    """Block -> the seqs in which it differs from the majority."""


def cell_of(op: Op) -> CellState:
    return _CODES[op.state]


def heat_map(
    members: Sequence[HeatMember], columns: range, tables: Tables, ops: OpNames, *, comparable: bool = True
) -> HeatMap:
    """`comparable`: members must agree slot by slot. For the ends of a channel only if both hold the first message."""
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
    """Columns inside the track without an op: the dump contains only active ops."""
    inside = np.arange(columns.start, columns.stop)
    held = np.concatenate([tables.blocks[key].seqs for key in track.blocks])
    return (inside >= track.first_seq) & (inside <= track.last_seq) & ~np.isin(inside, held)


def _runs(row: Bytes) -> tuple[Counts, Bytes]:
    starts = np.flatnonzero(np.diff(row, prepend=row[:1] ^ 255))
    return np.diff(starts, append=len(row)).astype(np.uint32), row[starts]


def _take_vote(tracks: Sequence[Track], columns: range, tables: Tables) -> _Majority:
    """Each block votes once, weighted by the number of ranks that have it."""
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
    return _Majority(usual, odd)


def _majority(grid: Tokens, voices: Ints) -> tuple[Tokens, NDArray[np.bool_]]:
    """Per column, the token with most votes, and which cells differ from it. In a tie all of them do."""
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


MAX_COLUMNS = 4096
"""Per group, the last ones: a screen shows no more, and a ring buffer rarely holds more of one group."""
MAX_RUNS = 8_000_000
"""Over all groups: 40 MB at five bytes each."""
MAX_GROUPS = 2048
MAX_CHANNELS = 256
"""Over all groups: a pipeline has two channels per pair of stages and rank, and a single one shows little."""
_MAX_SEQ = 2**53
"""The largest integers that a double holds exactly. A log may print any number."""
_BEFORE = 64
"""Columns shown before a divergence that is older than the last MAX_COLUMNS."""


class _Drawable(Struct, frozen=True):
    """A group or a channel, with what is needed to draw it."""

    group: ProcessGroup
    channel: Channel | None
    ranks: tuple[int, ...]
    members: tuple[HeatMember, ...]
    completed: Longs
    issued: Longs

    @property
    def is_pending(self) -> bool:
        return any(m.track is not None and m.track.first_active is not None for m in self.members)


def draw_groups(incident: Incident, verdict: Verdict, ops: OpNames) -> tuple[tuple[GroupPicture, ...], int]:
    """The pictures, with that of the divergence first, and how many groups and channels were left out."""
    timeline, divergence = incident.timeline, verdict.divergence
    groups = sorted((_of_group(g) for g in timeline.groups), key=lambda o: _importance(o, divergence))
    channels = sorted((_of_channel(c, timeline) for c in timeline.channels), key=lambda o: _importance(o, divergence))
    orders = sorted([*groups, *channels[:MAX_CHANNELS]], key=lambda o: _importance(o, divergence))[:MAX_GROUPS]
    drawn: list[GroupPicture] = []
    budget = MAX_RUNS
    for order in orders:
        picture = _draw(order, timeline, divergence, ops, budget)
        budget -= len(picture.heat.run_code)
        drawn.append(picture)
    if not timeline.traces:
        drawn += _from_logs(incident, divergence)
    return tuple(drawn), len(groups) + len(channels) - len(orders)


def _importance(
    order: _Drawable, divergence: Divergence | None
) -> tuple[bool, bool, int, bool, ProcessGroup, tuple[int, ...]]:
    return (
        not _is_at(order, divergence),
        order.channel is not None,
        -len(order.ranks),
        not order.is_pending,
        order.group,
        order.ranks,
    )


def _is_at(order: _Drawable, divergence: Divergence | None) -> bool:
    if divergence is None or order.group != divergence.group:
        return False
    return divergence.channel == (None if order.channel is None else order.ranks)


def _of_group(group: GroupTimeline) -> _Drawable:
    ranks = group.group.ranks
    members = tuple(HeatMember(group.track(r), _beyond(group, r)) for r in ranks)
    traces = [group.traces.get(r) for r in ranks]
    completed = [t.last_completed if t and t.last_completed is not None else -1 for t in traces]
    issued = [t.last_enqueued if t and t.last_enqueued is not None else -1 for t in traces]
    return _order(group.group, None, ranks, members, (completed, issued))


def _of_channel(channel: Channel, timeline: Timeline) -> _Drawable:
    ranks = (channel.source, channel.destination)
    members = tuple(
        HeatMember(channel.end(r), CellState.NOT_REACHED if r in timeline.positions else CellState.UNKNOWN)
        for r in ranks
    )
    return _order(channel.group, channel, ranks, members, ([-1, -1], [-1, -1]))


def _order(
    group: ProcessGroup,
    channel: Channel | None,
    ranks: tuple[int, ...],
    members: tuple[HeatMember, ...],
    status: tuple[list[int], list[int]],
) -> _Drawable:
    """A member's ops take precedence over its `pg_status`."""
    done = [
        m.track.last_done.seq if m.track and m.track.last_done else s for m, s in zip(members, status[0], strict=True)
    ]
    last = [m.track.last_seq if m.track else s for m, s in zip(members, status[1], strict=True)]
    return _Drawable(group, channel, ranks, members, np.array(done, np.int64), np.array(last, np.int64))


def _beyond(group: GroupTimeline, rank: int) -> CellState:
    track = group.track(rank)
    after = group.gap(rank, track.last_seq + 1 if track else 1)
    return CellState.NOT_REACHED if after is Gap.NOT_REACHED else CellState.UNKNOWN


def _draw(
    order: _Drawable, timeline: Timeline, divergence: Divergence | None, ops: OpNames, budget: int
) -> GroupPicture:
    at = _is_at(order, divergence)
    columns = _columns(order, divergence if at else None)
    comparable = order.channel is None or order.channel.counted
    heat = heat_map(order.members, columns, timeline.tables, ops, comparable=comparable)
    while len(heat.run_code) > budget and len(columns) > 1:
        # Too many runs, since every cell differs from its neighbour: keep only the last columns.
        columns = columns[-max(1, len(columns) // 4) :]
        heat = heat_map(order.members, columns, timeline.tables, ops, comparable=comparable)
    ends = f" {order.ranks[0]}->{order.ranks[1]}" if order.channel else ""
    return GroupPicture(
        name=order.group.name,
        desc=f"{order.group.desc}{ends}",
        is_channel=order.channel is not None,
        is_divergence=at,
        ranks=np.array(order.ranks, np.int32),
        first_seq=columns.start if columns else 0,
        last_seq=columns.stop - 1 if columns else -1,
        completed=order.completed,
        issued=order.issued,
        heat=heat,
    )


def _columns(order: _Drawable, divergence: Divergence | None) -> range:
    """The last MAX_COLUMNS recorded slots, or those from shortly before the divergence on, if it is older."""
    tracks = [m.track for m in order.members if m.track]
    if not tracks:
        return range(0)
    first, last = min(t.first_seq for t in tracks), max(t.last_seq for t in tracks)
    start = max(first, last + 1 - MAX_COLUMNS)
    if divergence is not None and divergence.seq is not None and divergence.seq < start:
        start = max(first, divergence.seq - _BEFORE)
    return range(start, min(last + 1, start + MAX_COLUMNS))


def _from_logs(incident: Incident, divergence: Divergence | None) -> Iterator[GroupPicture]:
    """How far ranks got according to their logs, if there are no dumps. Groups without a name cannot be compared."""
    world = frozenset(incident.timeline.world)
    by_group: dict[tuple[str, str], dict[int, Counters]] = {}
    for progress in read_progress(incident):
        if progress.group is not None and progress.counters is not None and progress.rank in world:
            by_group.setdefault((progress.group, progress.desc or ""), {})[progress.rank] = progress.counters
    for (name, desc), told in sorted(by_group.items(), key=lambda item: (-len(item[1]), item[0]))[:MAX_GROUPS]:
        yield GroupPicture(
            name=name,
            desc=desc,
            is_channel=False,
            is_divergence=divergence is not None and divergence.group.name == name,
            ranks=np.array(list(told), np.int32),
            first_seq=0,
            last_seq=-1,
            completed=np.array([min(c.completed, _MAX_SEQ) for c in told.values()], np.int64),
            issued=np.array([min(c.enqueued, _MAX_SEQ) for c in told.values()], np.int64),
            heat=HeatMap(
                row_of=np.zeros(len(told), np.int32),
                row_start=np.zeros(2, np.int32),
                run_length=np.zeros(0, np.uint32),
                run_code=np.zeros(0, np.uint8),
                op=np.zeros(0, np.uint8),
            ),
        )
