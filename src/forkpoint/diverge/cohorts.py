"""Cohorts: the ranks that behaved the same at a slot. Also builds divergences from them."""

from msgspec import Struct
from msgspec.structs import replace

from forkpoint.diverge.slots import token_at
from forkpoint.model.entries import Tables
from forkpoint.model.incident import Cohort, Divergence, PartingKind, Role, Shift
from forkpoint.model.op import SIZES_FREE, Op, OpState, Signature, Stack
from forkpoint.model.timeline import Channel, Gap, GroupTimeline, Timeline
from forkpoint.model.trace import Track
from forkpoint.model.world import ProcessGroup


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
