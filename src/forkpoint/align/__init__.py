"""Stage 2: Capture -> Timeline. Groups are matched by name *and* members, ops by absolute sequence number.

Never by record_id (each rank counts for itself), never relative to the first op or the first file read.
"""

import numpy as np

from forkpoint.align.groups import align_groups
from forkpoint.model.capture import Capture
from forkpoint.model.log import LogKind
from forkpoint.model.op import OpState
from forkpoint.model.records import PARTIAL
from forkpoint.model.rows import Rows, read_rows
from forkpoint.model.timeline import UNBOUNDED, Channels, GroupTimeline, Positions, Stands, Timeline
from forkpoint.model.tokens import numel
from forkpoint.model.trace import RankTrace
from forkpoint.model.traces import Traces, TracesByRank
from forkpoint.model.world import ProcessGroup

MAX_WORLD = 1_000_000
"""Ten times the largest job there is: a log that claims more is not believed."""


def align(capture: Capture) -> Timeline:
    traces = TracesByRank(capture.traces)
    world = _world(capture)
    rows = read_rows(traces.in_order)
    cut = frozenset(traces.in_order.ranks[traces.in_order.heads["cut"] != 0].tolist())
    groups = align_groups(rows, traces, world, cut)
    channels = Channels(rows, traces.in_order, _channel_groups(rows, world))
    blind = cut.union(*(group.blind_after for group in groups), _dumped_before(channels), _cannot_tell(traces, groups))
    return Timeline(
        world=world,
        unseen=_unseen(capture, world),
        traces=traces,
        groups=tuple(sorted(groups, key=lambda timeline: timeline.group)),
        channels=channels,
        positions=Positions(traces, blind, rows, groups, channels),
        stands=Stands(rows, traces.in_order, groups, channels, blind),
        blind=blind,
        entering=_entering(rows, traces.in_order),
        tables=capture.tables,
    )


def _channel_groups(rows: Rows, world: tuple[int, ...]) -> dict[int, ProcessGroup]:
    """The groups that have messages, by their index in the rows."""
    used = [(number, rows.names[number]) for number in np.unique(rows.channels.group).tolist()]
    return {n: ProcessGroup(g.name, g.desc, g.members or world, declared=g.members is not None) for n, g in used}


def _dumped_before(channels: Channels) -> frozenset[int]:
    """Senders of messages that were received but that their dumps do not hold yet."""
    found: set[int] = set()
    for channel, alike in channels.by_kind():
        done = channel.received.last_done if channel.received and channel.counted else None
        if done and channel.sent and done.seq > channel.sent.last_seq:
            found.update(channels[index].source for index in alike)
    return frozenset(found)


def _cannot_tell(traces: TracesByRank, groups: tuple[GroupTimeline, ...]) -> frozenset[int]:
    """Ranks whose dumps leave out what is done and show nothing pending, unless their counters say that nothing is."""
    flags = traces.in_order.heads["flags"]
    partial = traces.in_order.ranks[(flags & PARTIAL) != 0].tolist()
    if not partial:
        return frozenset()
    with_messages = {(g.group.name, g.group.ranks) for g in groups if g.has_messages}
    return frozenset(r for r in partial if not (_shows_pending(traces[r]) or _is_idle(traces[r], with_messages)))


def _shows_pending(trace: RankTrace) -> bool:
    tracks = (*(g.collectives for g in trace.groups), *(c.messages for c in trace.channels))
    return any(track.active_seq is not None for track in tracks if track)


def _is_idle(trace: RankTrace, with_messages: set[tuple[str, tuple[int, ...]]]) -> bool:
    """Its counters say that all it enqueued is done, in every group; those of messages tell of the last one only."""
    counted = [g for g in trace.groups if g.last_enqueued is not None]
    pending = any(g.last_enqueued != g.last_completed for g in counted)
    return bool(counted) and not pending and not any((g.name, g.members) in with_messages for g in counted)


def _entering(rows: Rows, traces: Traces) -> frozenset[int]:
    pending = [(kind, op.state) for kind, shape in enumerate(rows.kinds) if (op := shape.active_op)]
    kinds = [kind for kind, state in pending if state in (OpState.ENTERING, OpState.ABORTED)]
    found = [table.trace[np.isin(table.kind, kinds)] for table in (rows.groups, rows.channels)]
    return frozenset(traces.ranks[np.concatenate(found)].tolist())


def _world(capture: Capture) -> tuple[int, ...]:
    """As declared; otherwise up to the highest rank that any evidence names: ranks are numbered from zero."""
    declared = _declared_world(capture)
    if declared:
        return declared
    named = {t.rank for t in capture.traces} | {s.rank for s in capture.stacks}
    named |= {rank for t in capture.traces for g in t.groups for rank in g.members or ()}
    named |= {rank for _, rank in capture.logs if rank is not None}
    named |= {e.rank for e in capture.events if e.rank is not None}
    named |= capture.values.ranks
    return tuple(range(max((r for r in named if r < MAX_WORLD), default=-1) + 1))


def _unseen(capture: Capture, world: tuple[int, ...]) -> int:
    if _declared_world(capture):
        return 0
    dumped = {trace.rank for trace in capture.traces if trace.entries}
    heard = {rank for _, rank in capture.logs}
    seen = {stack.rank for stack in capture.stacks}
    return 1 if any(ranks >= set(world) for ranks in (dumped, heard, seen)) else UNBOUNDED


def _declared_world(capture: Capture) -> tuple[int, ...]:
    """As the dumps say, as logs say when the default group is made (at INFO level), or as all_gather shows, if they agree."""
    for trace in capture.traces:
        if trace.world and not trace.world_is_guess:
            return tuple(sorted(trace.world))
    if capture.values.world:
        return tuple(range(capture.values.world))
    made = [e for e in capture.events if e.kind is LogKind.SETTINGS and e.detail("group_name") == "0"]
    sizes = (
        {int(size) for e in made if (size := e.detail("size"))} or _gathered_sizes(capture) or _guessed_sizes(capture)
    )
    return tuple(range(sizes.pop())) if len(sizes) == 1 and max(sizes) <= MAX_WORLD else ()


def _guessed_sizes(capture: Capture) -> set[int]:
    """Where every dump guesses the same ranks, from zero, and is of one of them."""
    guesses = {trace.world for trace in capture.traces}
    worlds = {world for world in guesses if world and world == tuple(range(len(world)))}
    fits = len(guesses) == len(worlds) == 1 and all(trace.rank in next(iter(worlds)) for trace in capture.traces)
    return {len(next(iter(worlds)))} if fits else set()


def _gathered_sizes(capture: Capture) -> set[int]:
    """How many members the default group of gloo has: an all_gather gives each of them one output as large as the input,
    or gloo refuses it.
    """
    tracks = [g.collectives for t in capture.traces for g in t.groups if g.name == "0" and t.comm_lib == "gloo"]
    blocks = {key for track in tracks if track for key in track.blocks}
    calls = {call for key in blocks for call in set(capture.tables.blocks[key].match.tolist())}
    gathers = [s for call in calls for s in capture.tables.signatures.get(call, ()) if s.op == "all_gather"]
    return {numel(s.output_sizes) // numel(s.input_sizes) for s in gathers if numel(s.input_sizes)}
