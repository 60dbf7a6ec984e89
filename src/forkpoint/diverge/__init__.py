"""Stages 3 and 4: Timeline -> Partings -> Divergences. Finds the earliest parting by following who waits for whom.

A rank that waits in one group for a rank that is blocked in another is a victim: blame follows the waits to their end.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from forkpoint.diverge.cohorts import build_divergence, cohorts_at, first_pending
from forkpoint.diverge.habits import find_shift, next_group, odd_at_absence, odd_ranks
from forkpoint.diverge.messages import find_message_shift
from forkpoint.diverge.replicas import Leaving, Replicas, left_replicas, left_unseen
from forkpoint.diverge.rings import (
    from_one_line,
    from_other_sites,
    is_made_again,
    is_one_thread,
    is_permuted,
    left_order,
    never_issued,
    odd_by_habit,
)
from forkpoint.diverge.skipped import find_counted, find_skipped
from forkpoint.diverge.slots import differing_seqs, token_at
from forkpoint.diverge.waits import Wait, Waiting, Waits, find_cycle, find_waits
from forkpoint.model.entries import Tables
from forkpoint.model.frames import in_two_threads
from forkpoint.model.incident import Divergence, Parting, PartingKind, Shift
from forkpoint.model.op import Ints
from forkpoint.model.timeline import Channel, Gap, GroupTimeline, Timeline
from forkpoint.model.trace import Track

# ---------------------------------------------------------------------------------------------------------------------
# Stage 3: the slots in which ranks did different things. Nothing is judged here.


def find_partings(timeline: Timeline) -> tuple[Parting, ...]:
    """For each group and channel, the slots in which its members did different things. Waits are examined later."""
    found: list[Parting] = []
    differing = _DifferingSlots(timeline.tables)
    for group in timeline.groups:
        found += _metadata_partings(group, differing.of(group), timeline)
        found += _volume_partings(group, timeline)
    return (*found, *_message_partings(timeline))


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
# Stage 4: the parting that came first, or the place where the waits end.


def find_divergences(timeline: Timeline, partings: tuple[Parting, ...]) -> tuple[Divergence, ...]:
    """Where ranks diverge, earliest cause first: the first is the fork point, the others are alternatives."""
    waits = find_waits(timeline)
    odd_end = _common_end(partings)
    found = [_from_parting(p, odd_end, timeline) for p in partings]
    found += _message_counts(timeline, waits)
    lasting = [d for d in found if d.hang_seq is not None or not waits]
    passing = [d for d in found if d not in lasting]
    hang = _from_waits(waits, timeline) if waits else find_counted(timeline)
    open_hang = hang if hang and not hang.odd else None
    left = open_hang and (left_replicas(open_hang, waits, timeline) or left_unseen(open_hang, waits, timeline))
    ordered = sorted(lasting, key=lambda d: _when(d, timeline))
    return (*ordered, *(d for d in (left, hang) if d), *passing)


def _common_end(partings: tuple[Parting, ...]) -> tuple[int, ...]:
    """The one rank that is an end of every channel whose ends disagree on a message: otherwise all its peers, which do
    not talk to each other, would have to be wrong. Empty if there is no such rank, or if it has only one peer.
    """
    ends = [set(parting.channel) for parting in partings if parting.channel]
    common = set[int].intersection(*ends) if ends else set[int]()
    peers = {rank for pair in ends for rank in pair} - common
    return tuple(common) if len(common) == 1 and len(peers) > 1 else ()


def _from_parting(parting: Parting, odd_end: tuple[int, ...], timeline: Timeline) -> Divergence:
    if parting.channel is not None:
        channel = timeline.of_channel(parting.group, parting.channel)
        hang = first_pending(channel)
        return build_divergence(
            parting.kind, channel, parting.seq, timeline, sides=parting.sides, hang=hang, odd=odd_end
        )
    group = timeline.of_group(parting.group)
    unknown = _unknown(group, parting.seq)
    issued_from = (c.stack for c in cohorts_at(group, parting.seq, timeline) if c.op)
    odd = () if in_two_threads(issued_from) else _odd_side(parting, group, len(unknown), timeline)
    return build_divergence(
        parting.kind,
        group,
        parting.seq,
        timeline,
        sides=parting.sides,
        hang=first_pending(group),
        odd=odd,
        shift=_shift(parting.sides, odd, parting.seq, group, timeline),
        unknown=unknown,
    )


def _odd_side(parting: Parting, group: GroupTimeline, unknown: int, timeline: Timeline) -> tuple[int, ...]:
    """The majority decides; if ranks without a dump could overturn it, the comparison with parallel groups does."""
    voted = parting.odd or odd_ranks(parting.sides, unknown + _unseen(group, timeline))
    return voted or Replicas(timeline).find_odd(parting.sides, parting.group, parting.seq)


def _shift(
    sides: tuple[tuple[int, ...], ...], odd: tuple[int, ...], seq: int, group: GroupTimeline, timeline: Timeline
) -> Shift | None:
    """Whether the odd side was already off by some ops before this became visible. Without an odd side, the smaller side is
    compared.
    """
    other = next((side for side in sides if odd and set(side) <= set(odd)), sides[-1])
    usual = next((side for side in sides if side != other), None)
    tracks = [_longest(side, group) for side in (usual or (), other)]
    if tracks[0] is None or tracks[1] is None:
        return None
    found = find_shift(tracks[0], tracks[1], seq, timeline.tables)
    return Shift(other, *found) if found else None


def _longest(side: Iterable[int], group: GroupTimeline) -> Track | None:
    tracks = [t for r in side if (t := group.track(r))]
    return max(tracks, key=lambda t: (t.count, -t.last.rank), default=None)


def _message_counts(timeline: Timeline, waits: Waits) -> list[Divergence]:
    """The channel whose ends issued different numbers of messages. Only if a rank waits: order alone proves nothing."""
    shift = find_message_shift(timeline) if waits else None
    if shift is None:
        return []
    channel = shift.channel
    odd = () if shift.rank is None else (shift.rank,)
    return [
        build_divergence(
            PartingKind.MESSAGE,
            channel,
            shift.number,
            timeline,
            sides=((channel.source,), (channel.destination,)),
            hang=first_pending(channel),
            odd=odd,
            shift=Shift(odd, shift.by if shift.rank == channel.source else -shift.by, shift.number or 0),
        )
    ]


def _from_waits(waits: Waits, timeline: Timeline) -> Divergence | None:
    """At a call that ranks have passed without making it; else where the waits end: in a ring, at ranks that wait for nobody, in a slot
    that does not finish, or at ranks without a dump.
    """
    if not waits:
        return None
    passed = find_skipped(waits, timeline)
    if passed is not None and passed.odd:
        return passed
    blocked = _where_waits_end(waits, timeline)
    return passed if passed is not None and blocked.how is PartingKind.STUCK else blocked


def _where_waits_end(waits: Waits, timeline: Timeline) -> Divergence:
    cycle = find_cycle(waits)
    if cycle:
        return _at_cycle(cycle, waits, timeline)
    free = {r for r in timeline.positions if r not in waits} | timeline.idle
    for_free = [w for w in waits.waiting if not free.isdisjoint(w.held.absent)]
    if for_free:
        due = [w for w in for_free if any(_is_due(r, w, waits, timeline) for r in w.held.absent if r in free)]
        return _at_wait(_first_of(due or for_free, waits), PartingKind.ABSENCE, waits, timeline)
    stuck = [w for w in waits.waiting if not w.held.on and not w.held.unknown]
    if stuck:
        return _at_wait(_first_of(stuck, waits), PartingKind.STUCK, waits, timeline)
    # A rank that waits for a waiting rank is blocked by whatever blocks the latter.
    ends = [w for w in waits.waiting if not w.held.on]
    return _at_wait(_first_missed(ends or waits.waiting, waits, timeline), PartingKind.ABSENCE, waits, timeline)


def _first_missed(ends: Sequence[Waiting], waits: Waits, timeline: Timeline) -> int:
    """All members issue a collective at the same place in their program. A receive is posted long before its message is
    due, so a missing message comes first only if the ranks that wait in the collective have finished theirs.
    """
    channels = [waits.stand(w.ranks[0]).channel for w in ends]
    together = [w for w, channel in zip(ends, channels, strict=True) if channel is None]
    if not together:
        return _first_of(ends, waits)
    first = waits.with_rank(_first_of(together, waits))
    replicas, mates, missed = Replicas(timeline), set(first.ranks), set(first.held.unknown)
    alone = [w for w, channel in zip(ends, channels, strict=True) if channel and not missed.isdisjoint(w.held.unknown)]
    messages = [waits[w.ranks[0]] for w in alone]
    owed = [w.rank for w in messages if replicas.are_past(w.rank, w.position, mates)]
    return waits.first(owed or first.ranks)


def _first_of(waiting: Iterable[Waiting], waits: Waits) -> int:
    return waits.first(rank for one in waiting for rank in one.ranks)


def _at_cycle(cycle: tuple[int, ...], waits: Waits, timeline: Timeline) -> Divergence:
    """The divergence at the slot in which the odd ranks are missing."""
    odd, left = _odd_in_cycle(cycle, waits, timeline) if is_one_thread(cycle, waits) else ((), None)
    # What is something else entirely may be another order, if one line makes all these calls.
    may_be_order = left is not None and left.by is None and any(from_one_line(r, waits[r], timeline) for r in odd)
    skipped = left is not None and left.by != 0 and not may_be_order
    missed = [w for w in waits.waiting if not set(odd).isdisjoint(w.held.on)]
    if len(odd) == 1 and waits.with_rank(odd[0]).ranks == list(odd) and _stands_in_extra(odd[0], left, waits, timeline):
        missed = [waits.with_rank(odd[0])]
    first = _first_of(missed, waits) if missed else waits.first([r for r in cycle if r not in odd] or cycle)
    found = _at_wait(first, PartingKind.CYCLE, waits, timeline)
    permuted = is_permuted(cycle, waits, timeline)
    parted = skipped or left_order(cycle, odd, waits, timeline) or from_other_sites(cycle, waits, timeline)
    left = not permuted and parted
    return replace(found, odd=odd, cycle=cycle, left_order=left, is_permuted=permuted)


def _odd_in_cycle(cycle: tuple[int, ...], waits: Waits, timeline: Timeline) -> tuple[tuple[int, ...], Leaving | None]:
    """The rank that never issued the call in which most wait, although they issued its call; else the rank that left the
    program of its replicas; else the rank that broke its own pattern. A skipped message is reported for its channel.
    """
    missing, replicas = never_issued(cycle, waits, timeline.unseen), Replicas(timeline)
    left = None if missing else replicas.find_left(cycle)
    if left:
        together = waits.with_rank(left.rank).ranks
        return replicas.find_mates(left, together) if left.channel is None else (), left
    return missing or odd_by_habit(cycle, waits, timeline), None


def _stands_in_extra(rank: int, left: Leaving | None, waits: Waits, timeline: Timeline) -> bool:
    """The rank waits in the collective that it made too many: the fork is there, not where it is missing because of it."""
    stand = waits.stand(rank)
    added = left is not None and left.by is not None and left.by < 0 and left.at == stand.record_id
    return stand.channel is None and (added or is_made_again(rank, waits[rank], timeline))


def _is_due(rank: int, waiting: Waiting, waits: Waits, timeline: Timeline) -> bool:
    """After its last call, the absent rank used to continue in this group: so it is missing here first."""
    return rank not in timeline.blind and next_group(timeline.traces[rank]) == waits.stand(waiting.ranks[0]).group.name


def _at_wait(rank: int, kind: PartingKind, waits: Waits, timeline: Timeline) -> Divergence:
    """The divergence at the slot in which this rank waits."""
    wait = waits[rank]
    seen = [r for r in wait.held.absent if r in timeline.positions or r in timeline.idle]
    free = tuple(r for r in seen if r not in waits)
    if wait.position.channel is not None:
        return _at_message(wait, kind, free, timeline)
    group = timeline.of_group(wait.position.group)
    seq = wait.position.op.seq
    present = tuple(r for r in group.group.ranks if group.gap(r, seq) is None)
    hidden = tuple(r for r in wait.held.absent if r not in seen)  # absent, and no evidence says where they are
    unknown = len(wait.held.unknown) + len(hidden) + _unseen(group, timeline)
    odd = odd_at_absence(present, free, seq, group, unknown, timeline.tables) if free else ()
    if free and not odd and Replicas(timeline).are_alike(rank, group.group, seq):
        odd = free  # the waiting ranks do what parallel groups do: none of them issued an extra call
    whole = timeline.blind.isdisjoint(free)
    shift = _shift((present, free), odd, seq, group, timeline) if free and whole else None
    return build_divergence(
        kind,
        group,
        seq,
        timeline,
        sides=(present, free) if free else (present,),
        hang=seq,
        odd=odd,
        shift=shift,
        unknown=(*wait.held.unknown, *hidden),
    )


def _at_message(wait: Wait, kind: PartingKind, free: tuple[int, ...], timeline: Timeline) -> Divergence:
    position = wait.position
    assert position.channel is not None  # checked by the caller
    channel, number = timeline.of_channel(position.group, position.channel), position.op.seq
    sides = ((wait.rank,), wait.held.on)
    return build_divergence(
        kind, channel, number, timeline, sides=sides, hang=number, odd=free, unknown=wait.held.unknown
    )


def _unseen(group: GroupTimeline, timeline: Timeline) -> int:
    """Ranks without any evidence that may be members; none if the members are declared."""
    return 0 if group.group.declared else timeline.unseen


def _unknown(group: GroupTimeline, seq: int) -> tuple[int, ...]:
    hidden = (r for r in group.group.ranks if group.gap(r, seq) in (Gap.NO_DUMP, Gap.EVICTED))
    return (*hidden, *group.maybe)


def _when(divergence: Divergence, timeline: Timeline) -> tuple[int, int, str]:
    """When the slot of the fork was issued; 0 if that is no longer known: it was then earlier than anything known."""
    seq = divergence.seq or 0
    tracks: list[Track | None] = []
    if divergence.channel is not None:
        channel = timeline.of_channel(divergence.group, divergence.channel)
        tracks = [channel.sent, channel.received]
    else:
        group = timeline.of_group(divergence.group)
        tracks = [group.track(r) for r in group.traces]
    times = [int(t.recent_created_ns[t.recent_seqs == seq][0]) for t in tracks if t and (t.recent_seqs == seq).any()]
    return (min(times, default=0), seq, divergence.group.name)
