"""What one rank holds at one position of a group's order: the question behind `issued` and `missing`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forkpoint.agent.case import Case
from forkpoint.agent.claim import Status
from forkpoint.agent.claims.groups import shown
from forkpoint.agent.claims.wording import number
from forkpoint.agent.fact import Fact
from forkpoint.agent.tools.answers import fact
from forkpoint.agent.tools.calls import tell_slot
from forkpoint.align.slots import token_at
from forkpoint.model.timeline import Channel, Gap, GroupTimeline
from forkpoint.model.trace import Track

_GAPS = {
    Gap.EVICTED: "rank {rank}'s ring buffer no longer holds seq {seq}",
    Gap.NO_DUMP: "no dump of rank {rank} goes as far as seq {seq}",
    Gap.NOT_REACHED: "rank {rank} has not come to seq {seq}",
}

Message = tuple[str, tuple[int, int] | None]
"""`send` or `recv`; and between which members, source first, if that was said."""


@dataclass(frozen=True, slots=True)
class Held:
    """Supported: it is there."""

    status: Status
    why: str
    ops: tuple[str, ...] = ()
    fact: Fact | None = None


def held_at(rank: int, group: GroupTimeline, seq: int, case: Case) -> Held:
    """The collective that a rank issued at `seq`."""
    gap, told = group.gap(rank, seq), f"rank {rank} {shown(group.group, case)} seq {number(seq)}"
    if rank in group.maybe:
        return Held(Status.UNVERIFIABLE, f"nothing tells whether rank {rank} is of {shown(group.group, case)}")
    if gap is not None:
        status = Status.CONTRADICTED if gap is Gap.NOT_REACHED else Status.UNVERIFIABLE
        why = _GAPS[gap].format(rank=rank, seq=number(seq))
        return Held(status, why, fact=Fact(told, _last(group.track(rank), case)) if gap is Gap.NOT_REACHED else None)
    track, tables = group.track(rank), case.incident.timeline.tables
    token = token_at(track, seq, tables) if track is not None else None
    signatures = tables.signatures.get(token, ()) if token is not None else ()
    ops = tuple(dict.fromkeys(case.clean(s.op) for s in signatures))
    if not ops:
        return Held(Status.UNVERIFIABLE, f"the dump of rank {rank} does not hold seq {number(seq)}")
    says = tell_slot(track, seq, tables, group.traces[rank].volumes) if track is not None else None
    return Held(
        Status.SUPPORTED, f"rank {rank} issued {' and '.join(ops)} there", ops, fact(case, told, says or ops[0])
    )


def missing_at(
    rank: int, group: GroupTimeline, seq: int, gaps: frozenset[Gap | None], channels: Sequence[Channel], case: Case
) -> Held:
    """Supported: the rank is not there, and another member is. `gaps` are those of all members at this seq, `channels`
    those of the rank.
    """
    if None in gaps:
        return _turned(held_at(rank, group, seq, case))
    by_message = [_missing_on(rank, channel, seq, case) for channel in channels]
    best = next((h for s in (Status.SUPPORTED, Status.UNVERIFIABLE) for h in by_message if h.status is s), None)
    if best is not None:
        return best
    if any(gap is not Gap.NOT_REACHED for gap in gaps):
        return Held(Status.UNVERIFIABLE, f"no dump shows a member at seq {number(seq)}, and not all dumps go so far")
    return Held(Status.CONTRADICTED, f"no member has come to seq {number(seq)}: nobody is missed there")


def messages_at(
    rank: int, group: GroupTimeline, seq: int, message: Message, channels: Sequence[Channel], case: Case
) -> Held:
    """A message of that number that a rank sent, or received, on one of its channels."""
    op, peers = message
    ends = _global(peers, group) if peers is not None else None
    if peers is not None and ends is None:
        return Held(Status.CONTRADICTED, f"{shown(group.group, case)} has no members of these numbers")
    tracks: list[Track] = []
    for channel in channels:
        own = (channel.source if op == "send" else channel.destination) == rank
        track = channel.end(rank)
        if own and track is not None and (ends is None or ends == (channel.source, channel.destination)):
            tracks.append(track)
    if any(token_at(t, seq, case.incident.timeline.tables) is not None for t in tracks):
        where = f"rank {rank} {shown(group.group, case)} message {number(seq)}"
        return Held(Status.SUPPORTED, f"rank {rank} issued {op} there", (op,), Fact(where, op))
    return _unheld(rank, tracks, seq, op, case)


def _unheld(rank: int, tracks: list[Track], seq: int, op: str, case: Case) -> Held:
    trace = case.incident.timeline.traces.get(rank)
    if trace is None or rank in case.incident.timeline.blind:
        return Held(Status.UNVERIFIABLE, f"no whole dump of rank {rank} was read")
    evicted = any(seq < t.first_seq and not t.from_start for t in tracks) or (not tracks and not trace.from_start)
    if evicted:
        return Held(Status.UNVERIFIABLE, f"rank {rank}'s ring buffer no longer holds {op} {number(seq)}")
    return Held(Status.CONTRADICTED, f"rank {rank} has issued no {op} of number {number(seq)}")


def _missing_on(rank: int, channel: Channel, seq: int, case: Case) -> Held:
    """Contradicted: nobody is missed on this channel at this message."""
    timeline = case.incident.timeline
    mine = channel.end(rank)
    theirs = channel.received if rank == channel.source else channel.sent
    there = theirs is not None and token_at(theirs, seq, timeline.tables) is not None
    if not there or (mine is not None and token_at(mine, seq, timeline.tables) is not None):
        return Held(Status.CONTRADICTED, "nobody is missed there")
    whole = rank in timeline.traces and rank not in timeline.blind
    evicted = not timeline.traces[rank].from_start if whole and mine is None else False
    if not whole or evicted or (mine is not None and seq <= mine.last_seq):
        return Held(Status.UNVERIFIABLE, f"no dump of rank {rank} shows whether it came to message {number(seq)}")
    ends = f"{channel.source}->{channel.destination}"
    why = f"rank {rank} has not come to message {number(seq)} of {ends}, its peer has"
    return Held(Status.SUPPORTED, why, fact=Fact(f"rank {rank} {shown(channel.group, case)} {ends}", _last(mine, case)))


def _turned(held: Held) -> Held:
    """Being there and not being there."""
    turned = {Status.SUPPORTED: Status.CONTRADICTED, Status.CONTRADICTED: Status.SUPPORTED}
    return Held(turned.get(held.status, held.status), held.why, held.ops, held.fact)


def channels_of(ranks: Iterable[int], group: GroupTimeline, case: Case) -> dict[int, list[Channel]]:
    """Those of the group that each rank is an end of."""
    found: dict[int, list[Channel]] = {rank: [] for rank in ranks}
    for channel in case.incident.timeline.channels:
        other = channel.group.declared and channel.group.ranks != group.group.ranks
        if channel.group.name == group.group.name and not other:
            for rank in {channel.source, channel.destination} & found.keys():
                found[rank].append(channel)
    return found


def _global(peers: tuple[int, int], group: GroupTimeline) -> tuple[int, int] | None:
    members = group.group.ranks
    return (members[peers[0]], members[peers[1]]) if max(peers) < len(members) else None


def _last(track: Track | None, case: Case) -> str:
    if track is None:
        return "holds nothing of it"
    return f"its last is seq {track.last_seq}, {case.clean(track.last.signatures[0].op)}"
