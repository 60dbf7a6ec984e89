"""Stage 3: Timeline -> Partings. Groups ranks that behaved the same at a slot into cohorts; also builds divergences."""

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from forkpoint.diverge.slots import differing_seqs, token_at
from forkpoint.model.entries import Tables
from forkpoint.model.incident import Cohort, Divergence, Parting, PartingKind, Role, Shift
from forkpoint.model.op import SIZES_FREE, Ints, Op, OpState, Signature, Stack
from forkpoint.model.timeline import Channel, Gap, GroupTimeline, Timeline
from forkpoint.model.trace import Track
from forkpoint.model.world import ProcessGroup

# ---------------------------------------------------------------------------------------------------------------------
# Stage 3: Timeline -> Partings. Ranks that behaved the same at a slot form a cohort; a slot with several kinds of behaviour
# is a parting. Nothing is judged here: the partings of all groups and channels are listed.


def find_partings(timeline: Timeline) -> tuple[Parting, ...]:
    """For each group and channel, the slots in which its members did different things. Waits are examined later."""
    found: list[Parting] = []
    differing = _DifferingSlots(timeline.tables)
    for group in timeline.groups:
        found += _metadata_partings(group, differing.of(group), timeline)
        found += _volume_partings(group, timeline)
    return (*found, *_message_partings(timeline))


def cohorts_at(group: GroupTimeline, seq: int, timeline: Timeline) -> tuple[Cohort, ...]:
    """All members of the group, by what they did at `seq`: the largest cohort first."""
    by_behaviour: dict[_Behaviour, list[int]] = {}
    for rank in group.group.ranks:
        by_behaviour.setdefault(_behaviour(group, rank, seq, timeline), []).append(rank)
    ordered = sorted(by_behaviour.items(), key=lambda item: (-len(item[1]), item[1]))
    return tuple(_cohort(behaviour, tuple(sorted(ranks))) for behaviour, ranks in ordered)


def channel_cohorts(channel: Channel, number: int, timeline: Timeline) -> tuple[Cohort, ...]:
    """Both ends of a channel at one message."""
    ends = ((channel.source, channel.sent), (channel.destination, channel.received))
    return tuple(_cohort(_channel_behaviour(rank, track, number, timeline), (rank,)) for rank, track in ends)


class _Behaviour(Struct, frozen=True):
    role: Role
    signature: Signature | None = None
    state: OpState | None = None
    stack: Stack | None = None
    where: str | None = None
    thread: str | None = None


def _behaviour(group: GroupTimeline, rank: int, seq: int, timeline: Timeline) -> _Behaviour:
    gap = group.gap(rank, seq)
    if gap is Gap.NO_DUMP:
        return _Behaviour(Role.SILENT, where="its dump ends before this" if rank in timeline.traces else "no dump")
    if gap is Gap.EVICTED:
        if (counted := group.pending_by_counters(rank)) and counted[0] < seq:
            return _Behaviour(
                Role.WAITING, where=f"finished seq {counted[0]} and enqueued up to {counted[1]}, by its counters"
            )
        held = (
            "its dump leaves out finished ops" if timeline.traces[rank].is_partial else "no longer in its ring buffer"
        )
        return _Behaviour(Role.SILENT, where=held)
    if gap is Gap.NOT_REACHED:
        return _absent(rank, group, timeline)
    track = group.track(rank)
    assert track is not None  # gap() has just said so
    return _present(track, seq, timeline)


def _absent(rank: int, group: GroupTimeline, timeline: Timeline) -> _Behaviour:
    stands = timeline.positions.get(rank, ())
    track = None if rank in group.cut else group.track(rank)
    if not stands:
        last, counted = track.last if track else None, group.counter(rank)
        where = f"last issued {last.signatures[0].op} seq {last.seq}" if last else "issued nothing in this group"
        if not last and counted is not None and counted > 0:
            where = f"last enqueued seq {counted}, according to its counters"
        return _Behaviour(Role.BEHIND, where=where, stack=last.stack if last else None)
    first = stands[0]
    place = f"channel {first.channel[0]}->{first.channel[1]} message" if first.channel else f"{first.group} seq"
    op = first.op
    return _Behaviour(Role.ELSEWHERE, None, op.state, op.stack, f"in {op.signatures[0].op}, {place} {op.seq}")


def _present(track: Track, seq: int, timeline: Timeline) -> _Behaviour:
    op = frontier_op(track, seq)
    if op is not None:
        role = Role.AHEAD if op.state is OpState.COMPLETED else Role.WAITING
        return _Behaviour(role, op.signatures[0], op.state, op.stack, thread=op.thread)
    done = track.last_done is not None and seq <= track.last_done.seq
    signature, stack = issued(track, seq, timeline.tables)
    return _Behaviour(Role.AHEAD if done else Role.WAITING, signature, OpState.COMPLETED if done else None, stack)


def frontier_op(track: Track, seq: int) -> Op | None:
    """The op at `seq`, if it was kept in full."""
    return next((op for op in (track.first_active, track.last_done, track.last) if op and op.seq == seq), None)


def issued(track: Track, seq: int, tables: Tables) -> tuple[Signature | None, Stack | None]:
    """What a track holds at `seq`, as far as the tables still know it."""
    match = token_at(track, seq, tables)
    stack = token_at(track, seq, tables, "stack")
    signature = tables.signatures[match][0] if match is not None else None
    if signature is not None and signature.op in SIZES_FREE:
        # Calls whose sizes may differ share a token, so these sizes may be another rank's.
        signature = replace(signature, input_sizes=(), output_sizes=())
    return signature, tables.stacks.get(stack) if stack is not None else None


def _channel_behaviour(rank: int, track: Track | None, number: int, timeline: Timeline) -> _Behaviour:
    if rank not in timeline.traces or (rank in timeline.blind and (track is None or number > track.last_seq)):
        return _Behaviour(Role.SILENT, where="no dump" if rank not in timeline.traces else "its dump ends before this")
    if track is not None and track.first_seq <= number <= track.last_seq:
        found = _present(track, number, timeline)
        # Both ends of a message share a token: the example behind it may be the other end's.
        op = track.last.signatures[0].op
        return replace(found, signature=replace(found.signature, op=op)) if found.signature else found
    stands = timeline.positions.get(rank, ())
    if track is None and timeline.traces[rank].is_partial and not stands:
        return _Behaviour(Role.SILENT, where="its dump leaves out finished ops")
    if stands:
        return _Behaviour(
            Role.ELSEWHERE, where=f"in {stands[0].op.signatures[0].op} seq {stands[0].op.seq}", stack=stands[0].op.stack
        )
    return _Behaviour(Role.BEHIND, where=f"{track.count if track else 0} messages so far")


def _cohort(behaviour: _Behaviour, ranks: tuple[int, ...]) -> Cohort:
    signature = behaviour.signature
    return Cohort(
        ranks=ranks,
        role=behaviour.role,
        op=signature.op if signature else None,
        sizes=(signature.input_sizes or signature.output_sizes) if signature else (),
        dtypes=(signature.input_dtypes or signature.output_dtypes) if signature else (),
        state=behaviour.state,
        stack=behaviour.stack,
        thread=behaviour.thread,
        where=behaviour.where,
    )


class _DifferingSlots:
    """The first slot of a group in which tracks differ. Groups with the same kinds of tracks are compared only once."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._known: dict[frozenset[int], int | None] = {}

    def of(self, group: GroupTimeline) -> int | None:
        kinds = frozenset(kind for kind, _ in group.kinds)
        if kinds not in self._known:
            tracks = (group.track(rank) for _, rank in group.kinds)
            differing = differing_seqs((track for track in tracks if track), self._tables)
            self._known[kinds] = int(differing[0]) if differing.size else None
        return self._known[kinds]


def _metadata_partings(group: GroupTimeline, seq: int | None, timeline: Timeline) -> list[Parting]:
    if seq is None:
        return []
    tracks = ((r, t) for r in group.traces if (t := group.track(r)))
    tokens = {r: t for r, track in tracks if (t := token_at(track, seq, timeline.tables)) is not None}
    return [Parting(PartingKind.METADATA, group.group, None, seq, _by_token(tokens))]


def _by_token(tokens: dict[int, int]) -> tuple[tuple[int, ...], ...]:
    """Groups of ranks with equal tokens, the largest first."""
    found: dict[int, list[int]] = {}
    for rank, token in sorted(tokens.items()):
        found.setdefault(token, []).append(rank)
    return tuple(tuple(ranks) for ranks in sorted(found.values(), key=lambda ranks: (-len(ranks), ranks)))


def _volume_partings(group: GroupTimeline, timeline: Timeline) -> list[Parting]:
    """all_to_all: all members together must receive as many elements as they send. Needs every member's dump."""
    everyone = timeline.unseen == 0 and len(timeline.traces) == len(timeline.world)
    if not group.is_uneven or not (group.group.declared or everyone):
        return _lone_sender(group)
    volumes = {rank: v for rank, trace in group.traces.items() if (v := trace.volumes)}
    seq = _first_unbalanced([(v.seqs, v.sent - v.received) for v in volumes.values()])
    if seq is None:
        return _lone_sender(group)
    sides: dict[tuple[int, int], list[int]] = {}
    for rank, v in volumes.items():
        for at in np.flatnonzero(v.seqs == seq):
            sides.setdefault((int(v.sent[at]), int(v.received[at])), []).append(rank)
    ordered = sorted(sides.values(), key=lambda ranks: (-len(ranks), ranks))
    return [Parting(PartingKind.VOLUME, group.group, None, seq, tuple(map(tuple, ordered)))]


_LEAST_SENDERS = 3
"""Minimum number of members with dumps: of two, either could be the one that changed its amount."""


def _lone_sender(group: GroupTimeline) -> list[Parting]:
    """For an all_to_all in which some members have no dump, so that the amounts cannot be summed. A rank decides what it
    sends; its peers decide what it receives. If all known members always sent and received one amount, and in the pending
    call one of them sends another amount while all receive the usual one, that rank is the odd one.
    """
    seq = first_pending(group)
    told = {rank: v for rank, trace in group.traces.items() if (v := trace.volumes) and (v.seqs == seq).any()}
    if seq is None or len(told) < _LEAST_SENDERS or len(told) == len(group.group.ranks):
        return []
    before = [amounts[v.seqs < seq] for v in told.values() for amounts in (v.sent, v.received)]
    usual = np.unique(np.concatenate(before))
    at = {rank: (int(v.sent[v.seqs == seq][0]), int(v.received[v.seqs == seq][0])) for rank, v in told.items()}
    odd = tuple(rank for rank, (sent, _) in at.items() if usual.size == 1 and sent != usual[0])
    if len(odd) != 1 or any(received != usual[0] for _, received in at.values()):
        return []
    others = tuple(rank for rank in sorted(told) if rank not in odd)
    return [Parting(PartingKind.VOLUME, group.group, None, seq, (others, odd), odd)]


def _first_unbalanced(kept: list[tuple[Ints, Ints]]) -> int | None:
    """The first slot in which the totals sent and received differ, among the slots that all members hold."""
    common = kept[0][0]
    if all(np.array_equal(seqs, common) for seqs, _ in kept):  # the usual case
        bad = common[np.sum([more for _, more in kept], axis=0) != 0]
        return int(bad[0]) if bad.size else None
    seqs = np.concatenate([seqs for seqs, _ in kept])
    slots, which, holders = np.unique(seqs, return_inverse=True, return_counts=True)
    excess = np.zeros(len(slots), np.int64)
    np.add.at(excess, which, np.concatenate([more for _, more in kept]))
    bad = slots[(holders == len(kept)) & (excess != 0)]
    return int(bad[0]) if bad.size else None


def _message_partings(timeline: Timeline) -> list[Parting]:
    """Sender and receiver disagree on the size of the n-th message; needs both ends counted from the first."""
    found: dict[int, int] = {}
    for channel, alike in timeline.channels.by_kind():
        if channel.counted and channel.sent and channel.received:
            differing = differing_seqs((channel.sent, channel.received), timeline.tables)
            found.update(dict.fromkeys(alike, int(differing[0])) if differing.size else {})
    return [_message_parting(timeline.channels[index], seq) for index, seq in sorted(found.items())]


def _message_parting(channel: Channel, seq: int) -> Parting:
    ends = (channel.source, channel.destination)
    return Parting(PartingKind.MESSAGE, channel.group, ends, seq, ((channel.source,), (channel.destination,)))


# ---------------------------------------------------------------------------------------------------------------------
# Building a `Divergence`: at a recorded slot or message, or in a group without records.


def build_divergence(  # noqa: PLR0913 the parts of a divergence; those that could be confused are keyword-only
    how: PartingKind,
    where: GroupTimeline | Channel,
    at: int | None,
    timeline: Timeline,
    *,
    sides: tuple[tuple[int, ...], ...],
    hang: int | None,
    odd: tuple[int, ...] = (),
    shift: Shift | None = None,
    unknown: tuple[int, ...] = (),
    numbered: bool = True,
) -> Divergence:
    """`at`: the slot or message whose cohorts are shown. It is the fork point unless `shift` says that one side was off
    before. `numbered` False: the two ends count messages differently, so no number is given.
    """
    channel = (where.source, where.destination) if isinstance(where, Channel) else None
    visible = at if numbered else None
    return Divergence(
        how=how,
        group=where.group,
        channel=channel,
        seq=shift.since if shift and visible is not None else visible,
        first_visible_seq=visible,
        hang_seq=hang,
        cohorts=channel_cohorts(where, at or 0, timeline)
        if isinstance(where, Channel)
        else cohorts_at(where, at or 0, timeline),
        odd=odd,
        sides=sides,
        shift=shift,
        unknown=unknown,
    )


def unrecorded_divergence(
    how: PartingKind,
    cohorts: tuple[Cohort, ...],
    odd: tuple[int, ...] = (),
    *,
    ranks: tuple[int, ...] = (),
    seq: int | None = None,
) -> Divergence:
    """A divergence in the default group, if only logs or stacks say what ranks did. `ranks`: its members, if more than the
    cohorts'.
    """
    members = ranks or tuple(sorted(rank for cohort in cohorts for rank in cohort.ranks))
    group = ProcessGroup("0", "default_pg", members, declared=False)
    return Divergence(how, group, None, seq, seq, seq, cohorts, odd, tuple(cohort.ranks for cohort in cohorts))


def first_pending(where: GroupTimeline | Channel) -> int | None:
    """The first slot or message that is still pending on a rank."""
    if isinstance(where, Channel):
        tracks = [where.sent, where.received]
    else:
        tracks = [where.track(rank) for _, rank in where.kinds]
    return min((t.active_seq for t in tracks if t and t.active_seq is not None), default=None)
