"""Groups and channels -> GroupPictures: how far each member came, and the heat map of its ops."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forkpoint.log_progress import read_progress
from forkpoint.model.divergence import Divergence
from forkpoint.model.incident import Incident
from forkpoint.model.log import Counters
from forkpoint.model.picture import CellState, GroupPicture, HeatMap, Longs
from forkpoint.model.timeline import Channel, Gap, GroupTimeline, Timeline
from forkpoint.model.verdict import Verdict
from forkpoint.model.world import ProcessGroup
from forkpoint.pictures.heat import HeatMember, heat_map
from forkpoint.pictures.op_names import OpNames

MAX_COLUMNS = 4096
"""Per group, the last ones: a screen shows no more, and a ring buffer seldom holds more of one group."""
MAX_RUNS = 8_000_000
"""Over all groups: 40 MB at five bytes each."""
MAX_GROUPS = 2048
MAX_CHANNELS = 256
"""Of all groups: a pipeline has two channels per pair of stages and rank, and one picture of them tells little."""
_MAX_SEQ = 2**53
"""What a double holds exactly. A log may print any number."""
_BEFORE = 64
"""Columns kept before a divergence that lies further back than the last MAX_COLUMNS."""


@dataclass(frozen=True, slots=True)
class _Order:
    """A group or a channel on its way to a picture."""

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
    """Pictures, that of the divergence first, and how many groups and channels were left out."""
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
    order: _Order, divergence: Divergence | None
) -> tuple[bool, bool, int, bool, ProcessGroup, tuple[int, ...]]:
    return (
        not _is_at(order, divergence),
        order.channel is not None,
        -len(order.ranks),
        not order.is_pending,
        order.group,
        order.ranks,
    )


def _is_at(order: _Order, divergence: Divergence | None) -> bool:
    if divergence is None or order.group != divergence.group:
        return False
    return divergence.channel == (None if order.channel is None else order.ranks)


def _of_group(group: GroupTimeline) -> _Order:
    ranks = group.group.ranks
    members = tuple(HeatMember(group.track(r), _beyond(group, r)) for r in ranks)
    told = [group.traces.get(r) for r in ranks]
    completed = [t.last_completed if t and t.last_completed is not None else -1 for t in told]
    issued = [t.last_enqueued if t and t.last_enqueued is not None else -1 for t in told]
    return _order(group.group, None, ranks, members, (completed, issued))


def _of_channel(channel: Channel, timeline: Timeline) -> _Order:
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
) -> _Order:
    """What a member's ops show counts before what its `pg_status` says."""
    done = [
        m.track.last_done.seq if m.track and m.track.last_done else s for m, s in zip(members, status[0], strict=True)
    ]
    last = [m.track.last_seq if m.track else s for m, s in zip(members, status[1], strict=True)]
    return _Order(group, channel, ranks, members, np.array(done, np.int64), np.array(last, np.int64))


def _beyond(group: GroupTimeline, rank: int) -> CellState:
    track = group.track(rank)
    after = group.gap(rank, track.last_seq + 1 if track else 1)
    return CellState.NOT_REACHED if after is Gap.NOT_REACHED else CellState.UNKNOWN


def _draw(order: _Order, timeline: Timeline, divergence: Divergence | None, ops: OpNames, budget: int) -> GroupPicture:
    at = _is_at(order, divergence)
    columns = _columns(order, divergence if at else None)
    comparable = order.channel is None or order.channel.counted
    heat = heat_map(order.members, columns, timeline.tables, ops, comparable=comparable)
    while len(heat.run_code) > budget and len(columns) > 1:
        # Every cell differs from its neighbour: fewer of them, the last ones.
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


def _columns(order: _Order, divergence: Divergence | None) -> range:
    """The last MAX_COLUMNS of what is recorded, or those from the divergence on where it lies before them."""
    tracks = [m.track for m in order.members if m.track]
    if not tracks:
        return range(0)
    first, last = min(t.first_seq for t in tracks), max(t.last_seq for t in tracks)
    start = max(first, last + 1 - MAX_COLUMNS)
    if divergence is not None and divergence.seq is not None and divergence.seq < start:
        start = max(first, divergence.seq - _BEFORE)
    return range(start, min(last + 1, start + MAX_COLUMNS))


def _from_logs(incident: Incident, divergence: Divergence | None) -> Iterator[GroupPicture]:
    """How far ranks came by their own words, where nothing was recorded. Groups without a name compare with nothing."""
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
