"""Stage 2: Capture -> Timeline. Groups are matched by name and members, ops by absolute sequence number."""

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct

from forkpoint.model.capture import Capture
from forkpoint.model.entries import TrackShape
from forkpoint.model.log import LogKind
from forkpoint.model.op import SYNCHRONISING, OpState, numel
from forkpoint.model.records import PARTIAL
from forkpoint.model.rows import (
    NO_KIND,
    NO_VOLUMES,
    NOT_HELD,
    UNEVEN,
    GroupName,
    GroupRows,
    GroupTraces,
    GroupTracks,
    Rows,
    read_rows,
)
from forkpoint.model.timeline import UNBOUNDED, Channels, GroupTimeline, Positions, Stands, Timeline
from forkpoint.model.trace import RankTrace
from forkpoint.model.traces import Traces, TracesByRank
from forkpoint.model.world import ProcessGroup

_NOBODY: Mapping[int, int] = {}


class _Job(Struct, frozen=True):
    """What is known about all ranks before any group is examined."""

    world: tuple[int, ...]
    traces: TracesByRank
    cut: frozenset[int]
    tracks: GroupTracks
    surely_issued: list[int]
    """Per kind of track, the highest seq that every member must have issued. `last_seq` is per kind, too."""
    last_seq: list[int]

    def kinds(self, held: GroupTraces) -> list[int]:
        """The kind of each rank's track; NO_KIND if it has no ops."""
        rows = held.rows
        if isinstance(rows, range):
            return self.tracks.kind[rows.start : rows.stop].tolist()
        return [NO_KIND if row == NOT_HELD else int(self.tracks.kind[row]) for row in rows]


def align_groups(
    rows: Rows, traces: TracesByRank, world: tuple[int, ...], cut: frozenset[int]
) -> tuple[GroupTimeline, ...]:
    """The groups in the order of `Rows.names`."""
    table = GroupRows(rows, traces)
    with_messages = frozenset(rows.channels.group.tolist())
    job = _Job(
        world=world,
        traces=traces,
        cut=cut,
        tracks=rows.groups,
        surely_issued=[_surely_issued(shape) for shape in rows.kinds],
        last_seq=[shape.last_seq for shape in rows.kinds],
    )
    return tuple(
        _timeline(table.holders(number, name), name, job, has_messages=number in with_messages)
        for number, name in enumerate(rows.names)
    )


def _timeline(held: GroupTraces, name: GroupName, job: _Job, *, has_messages: bool) -> GroupTimeline:
    members = name.members or _seen_members(name, held, job.world)
    group = ProcessGroup(name.name, name.desc, members, declared=name.members is not None)
    shown = held.among([rank for rank in sorted(members) if rank in job.traces])
    kinds = job.kinds(shown)
    return GroupTimeline(
        group=group,
        traces=shown,
        blind_after=_blind_after(shown, kinds, job),
        cut=job.cut,
        kinds=_one_of_each(shown, kinds),
        is_uneven=len(shown) == len(members) and _is_uneven(shown, job),
        has_messages=has_messages,
        maybe=() if group.declared else _may_belong(group, held, job),
    )


def _is_uneven(shown: GroupTraces, job: _Job) -> bool:
    if NOT_HELD in shown.rows:
        return False
    volumes = job.tracks.volumes[np.asarray(shown.rows)]
    return bool((volumes != NO_VOLUMES).all() and (volumes == UNEVEN).any())


def _seen_members(name: GroupName, held: Iterable[int], world: tuple[int, ...]) -> tuple[int, ...]:
    """Gloo dumps do not list group members. The default group is the world; of other groups only their users are known."""
    return world if name.desc == "default_pg" or name.name == "0" else tuple(sorted(held))


def _one_of_each(shown: GroupTraces, kinds: list[int]) -> tuple[tuple[int, int], ...]:
    found: dict[int, int] = {}
    for rank, kind in zip(shown, kinds, strict=True):
        found.setdefault(kind, rank)
    return tuple((kind, rank) for kind, rank in found.items() if kind != NO_KIND)


def _may_belong(group: ProcessGroup, held: GroupTraces, job: _Job) -> tuple[int, ...]:
    """Every member issued a collective that is completed, so a rank whose complete dump lacks it is not a member. All other
    ranks may be.
    """
    used = any(kind != NO_KIND and job.surely_issued[kind] for kind in set(job.kinds(held)))
    known = frozenset(group.ranks)
    return tuple(r for r in job.world if r not in known and not (used and _tells_all(r, job)))


def _tells_all(rank: int, job: _Job) -> bool:
    """Its dump is complete from the first op on: what is not in it did not happen."""
    trace = job.traces.get(rank)
    return trace is not None and rank not in job.cut and trace.from_start and not trace.is_partial


def _blind_after(shown: GroupTraces, kinds: list[int], job: _Job) -> Mapping[int, int]:
    """Ranks that may have continued after the last op in their dump: it was cut, or taken earlier than those of its peers."""
    distinct = set(kinds)
    known_by_peers = max((job.surely_issued[kind] for kind in distinct if kind != NO_KIND), default=0)
    last = {kind: 0 if kind == NO_KIND else job.last_seq[kind] for kind in distinct}
    if not job.cut and all(seq >= known_by_peers for seq in last.values()):
        return _NOBODY
    blind: dict[int, int] = {}
    for rank, kind in zip(shown, kinds, strict=True):
        may_be_evicted = kind == NO_KIND and not job.traces[rank].from_start
        if kind != NO_KIND and job.traces[rank].is_partial:
            continue  # completed ops are omitted: it may have issued everything that its peers know of
        if rank in job.cut or (last[kind] < known_by_peers and not may_be_evicted):
            blind[rank] = last[kind]
    return blind


def _surely_issued(shape: TrackShape) -> int:
    """The highest seq completed here, which every member must have issued."""
    done = None if shape.last_done is None else shape.ops[shape.last_done]
    return done.seq if done and all(s.op in SYNCHRONISING for s in done.signatures) else 0


# ---------------------------------------------------------------------------------------------------------------------
# The whole timeline. Ops are never matched by record_id (each rank has its own numbering), nor relative to the first op or
# to the first file that was read.

MAX_WORLD = 1_000_000
"""Ten times the largest job in existence: a log that claims more is not trusted."""


def align(capture: Capture) -> Timeline:
    traces = TracesByRank(capture.traces)
    world = _world(capture)
    rows = read_rows(traces.in_order)
    cut = frozenset(traces.in_order.ranks[traces.in_order.heads["cut"] != 0].tolist())
    groups = align_groups(rows, traces, world, cut)
    channels = Channels(rows, traces.in_order, _channel_groups(rows, world))
    with_messages = frozenset((g.group.name, g.group.ranks) for g in groups if g.has_messages)
    cannot_tell = _cannot_tell(traces)
    blind = cut.union(*(group.blind_after for group in groups), _dumped_before(channels), cannot_tell)
    return Timeline(
        world=world,
        unseen=_unseen(capture, world),
        traces=traces,
        groups=tuple(sorted(groups, key=lambda timeline: timeline.group)),
        channels=channels,
        positions=Positions(traces, blind, rows, groups, channels),
        stands=Stands(rows, traces.in_order, groups, channels, blind),
        blind=blind,
        idle=frozenset(rank for rank in cut if _is_idle(traces[rank], with_messages)),
        entering=_entering(rows, traces.in_order),
        tables=capture.tables,
    )


def _channel_groups(rows: Rows, world: tuple[int, ...]) -> dict[int, ProcessGroup]:
    """The groups that have messages, by their index in the rows."""
    used = [(number, rows.names[number]) for number in sorted(set(rows.channels.group.tolist()))]
    return {n: ProcessGroup(g.name, g.desc, g.members or world, declared=g.members is not None) for n, g in used}


def _dumped_before(channels: Channels) -> frozenset[int]:
    """Senders of messages that were received but are not in the sender's dump yet."""
    found: set[int] = set()
    for channel, alike in channels.by_kind():
        done = channel.received.last_done if channel.received and channel.counted else None
        if done and channel.sent and done.seq > channel.sent.last_seq:
            found.update(channels[index].source for index in alike)
    return frozenset(found)


_Members = frozenset[tuple[str, tuple[int, ...]]]
"""Names and ranks of groups."""


def _cannot_tell(traces: TracesByRank) -> frozenset[int]:
    """Ranks whose dumps omit completed ops and show nothing pending, unless their counters confirm that nothing is pending."""
    flags = traces.in_order.heads["flags"]
    partial = traces.in_order.ranks[(flags & PARTIAL) != 0].tolist()
    return frozenset(r for r in partial if not (_shows_pending(traces[r]) or _is_done(traces[r])))


def _shows_pending(trace: RankTrace) -> bool:
    tracks = (*(g.collectives for g in trace.groups), *(c.messages for c in trace.channels))
    return any(track.active_seq is not None for track in tracks if track)


def _is_idle(trace: RankTrace, with_messages: _Members) -> bool:
    """Its counters say that all is done, and none of its groups has messages, of which counters show only the last."""
    return _is_done(trace) and not any((g.name, g.members) in with_messages for g in trace.groups)


def _is_done(trace: RankTrace) -> bool:
    """Its counters say that the last op it enqueued is done, in every group."""
    counted = [g for g in trace.groups if g.last_enqueued is not None]
    return bool(counted) and all(g.last_enqueued == g.last_completed for g in counted)


def _entering(rows: Rows, traces: Traces) -> frozenset[int]:
    pending = [(kind, op.state) for kind, shape in enumerate(rows.kinds) if (op := shape.active_op)]
    entering = np.zeros(len(rows.kinds) + 1, np.bool_)  # the last is for rows without calls, whose kind is -1
    entering[[kind for kind, state in pending if state in (OpState.ENTERING, OpState.ABORTED)]] = True
    found = [table.trace[entering[table.kind]] for table in (rows.groups, rows.channels)]
    return frozenset(traces.ranks[np.concatenate(found)].tolist())


def _world(capture: Capture) -> tuple[int, ...]:
    """The declared world; otherwise all ranks from 0 up to the highest that any evidence names."""
    declared = _declared_world(capture)
    if declared:
        return declared
    return tuple(range(max((r for r in _named(capture) if r < MAX_WORLD), default=-1) + 1))


def _named(capture: Capture) -> set[int]:
    """Ranks that any evidence names."""
    named = {t.rank for t in capture.traces} | {s.rank for s in capture.stacks}
    named |= {rank for t in capture.traces for g in t.groups for rank in g.members or ()}
    named |= {rank for _, rank in (*capture.logs, *capture.empty_logs) if rank is not None}
    named |= {e.rank for e in capture.events if e.rank is not None}
    return named | capture.values.ranks


def _unseen(capture: Capture, world: tuple[int, ...]) -> int:
    if _declared_world(capture):
        return 0
    dumped = {trace.rank for trace in capture.traces if trace.entries}
    heard = {rank for _, rank in (*capture.logs, *capture.empty_logs)}
    heard |= {
        e.rank for e in capture.events if e.kind is LogKind.AGENT_FAILURE
    }  # a launcher's table has each of its ranks
    seen = {stack.rank for stack in capture.stacks}
    return 1 if dumped | heard | seen >= set(world) else UNBOUNDED


def _declared_world(capture: Capture) -> tuple[int, ...]:
    """From dumps, recorded values, logs of the creation of the default group (at INFO level), all_gather calls, gloo's guess, or what
    the program prints.
    """
    for trace in capture.traces:
        if trace.world and not trace.world_is_guess:
            return tuple(sorted(trace.world))
    if capture.values.world:
        return tuple(range(capture.values.world))
    made = [e for e in capture.events if e.kind is LogKind.SETTINGS and e.detail("group_name") == "0"]
    sizes = (
        {int(size) for e in made if (size := e.detail("size"))}
        or _gathered_sizes(capture)
        or _guessed_sizes(capture)
        or _printed_sizes(capture)
    )
    return tuple(range(sizes.pop())) if len(sizes) == 1 and max(sizes) <= MAX_WORLD else ()


def _guessed_sizes(capture: Capture) -> set[int]:
    """The size that all dumps suggest, if they suggest the same ranks, starting at zero, and belong to them."""
    guesses = {trace.world for trace in capture.traces}
    worlds = {world for world in guesses if world and world == tuple(range(len(world)))}
    fits = len(guesses) == len(worlds) == 1 and all(trace.rank in next(iter(worlds)) for trace in capture.traces)
    return {len(next(iter(worlds)))} if fits else set()


def _printed_sizes(capture: Capture) -> set[int]:
    """Nothing if logs print several numbers, or one that is too small for the ranks that were seen."""
    return set(capture.sizes) if capture.sizes and min(capture.sizes) > max(_named(capture), default=-1) else set()


def _gathered_sizes(capture: Capture) -> set[int]:
    """The size of gloo's default group: an all_gather has one output per member, each as large as the input; gloo rejects
    anything else.
    """
    tracks = [g.collectives for t in capture.traces for g in t.groups if g.name == "0" and t.comm_lib == "gloo"]
    blocks = {key for track in tracks if track for key in track.blocks}
    calls = {call for key in blocks for call in set(capture.tables.blocks[key].match.tolist())}
    gathers = [s for call in calls for s in capture.tables.signatures.get(call, ()) if s.op == "all_gather"]
    return {numel(s.output_sizes) // numel(s.input_sizes) for s in gathers if numel(s.input_sizes)}
