"""Claims about recorded calls: ranks issued an operation at a position of a group's order, or have not come to it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from forkpoint.agent.case import Case, Check, Claim, Fact, Status
from forkpoint.agent.naming import fact, is_plain, matching_groups, name_group, named, number, told_ranks
from forkpoint.agent.tools.recorded import tell_slot
from forkpoint.diverge.slots import token_at
from forkpoint.model.op import split_name
from forkpoint.model.timeline import Channel, Gap, GroupTimeline
from forkpoint.model.trace import Track
from forkpoint.model.world import ProcessGroup

# ---------------------------------------------------------------------------------------------------------------------
# The group that a claim means, operations as people write them, and what one rank holds at one position of a group's
# order: the questions behind `issued` and `missing`.

_LISTED = 8


def claimed_group(name: str, ranks: list[int], case: Case) -> GroupTimeline | Check:
    """By name or description. Groups that share one are told apart by who is in them."""
    if not ranks or not all(is_plain(rank) for rank in ranks):
        return Check.unverifiable(f"{told_ranks(ranks)}: name the ranks that are meant")
    meant = matching_groups(case, name)
    if not meant:
        return Check.unverifiable(f"no dump has a group {named(name)}; {_listed(case.incident.timeline.groups, case)}")
    holding = [g for g in meant if set(ranks) <= {*g.group.ranks, *g.maybe}]
    if len(holding) == 1:
        return holding[0]
    if holding:
        return Check.unverifiable(f"{len(holding)} groups are called {named(name)}; {_listed(holding, case)}")
    strangers = set(ranks) - {r for g in meant for r in (*g.group.ranks, *g.maybe)}
    if strangers:
        are = "is" if len(strangers) == 1 else "are"
        why = f"{told_ranks([*strangers])} {are} not of {named(name)}; {_listed(meant, case)}"
        return Check(Status.CONTRADICTED, why)
    return Check.unverifiable(f"no one group {named(name)} has all of these ranks; {_listed(meant, case)}")


def shown(group: ProcessGroup, case: Case) -> str:
    """As tools name it."""
    return case.clean(name_group(group, case.incident.timeline))


def _listed(groups: Sequence[GroupTimeline], case: Case) -> str:
    if not groups:
        return "no dump was read"
    told = [f"{shown(g.group, case)} of {told_ranks(g.group.ranks)}" for g in groups[:_LISTED]]
    more = f" and {len(groups) - _LISTED} more" if len(groups) > _LISTED else ""
    return f"there {'is' if len(groups) == 1 else 'are'} {', '.join(told)}{more}"


_LONGEST: Final = 60
_SAME: Final = {
    "allgatherintotensor": "allgatherbase",
    "allgathersingle": "allgatherbase",
    "reducescattertensor": "reducescatterbase",
    "reducescattersingle": "reducescatterbase",
    "alltoallsingle": "alltoall",
    "alltoallbase": "alltoall",
    "alltoallv": "alltoall",
    "allreducebarrier": "barrier",
    "isend": "send",
    "irecv": "recv",
    "broadcastoop": "broadcast",
    "gathersingle": "gather",
}
"""What a program calls, and how a recorder names that call."""


def same_op(one: str, two: str) -> bool:
    """`all_reduce`, `allreduce`, `ALLREDUCE` and `nccl:all_reduce` are one operation."""
    return plain_op(one) != "" and plain_op(one) == plain_op(two)


def plain_op(name: str) -> str:
    """One spelling for all; empty for what names no operation."""
    if len(name) > _LONGEST:
        return ""
    _, op, _ = split_name(name.strip())
    plain = op.rpartition(".")[2].lower()
    if not re.fullmatch(r"[a-z0-9_]+", plain):
        return ""
    plain = plain.replace("_", "")
    return _SAME.get(plain, plain)


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
    """Contradicted: no end of this channel is missing at this message."""
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
    """Supported becomes contradicted and vice versa."""
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


_MOST_FACTS = 4


def tally(by_rank: Mapping[int, tuple[tuple[Status, str], Fact | None]]) -> Check:
    for status in (Status.CONTRADICTED, Status.UNVERIFIABLE, Status.SUPPORTED):
        ranks = sorted(rank for rank, ((found, _), _) in by_rank.items() if found is status)
        if ranks:
            (_, why), _ = by_rank[ranks[0]]
            more = f" ({len(ranks)} of {len(by_rank)} ranks likewise)" if len(ranks) > 1 else ""
            facts = [fact for rank in ranks if (fact := by_rank[rank][1])]
            return Check(status, f"{why}{more}", tuple(facts[:_MOST_FACTS]))
    return Check.unverifiable("no rank is named")


# ---------------------------------------------------------------------------------------------------------------------
# Ranks issued an operation at a position of a group's order.
#
# | every rank | is |
# |---|---|
# | holds an op of that name at that seq of the group | supported |
# | is not of the group, holds another op there, or has not come so far (one of them is enough) | contradicted |
# | has no dump, or one that no longer holds the seq; the group is not one, or not one alone | unverifiable |
#
# `send` and `recv` are numbered on each channel: any channel of the rank will do, or the one that `send 0->1` names.

_MESSAGES = frozenset({"send", "recv"})


class Issued(Claim):
    """Who issued what, where."""

    kind: Literal["issued"]
    ranks: list[int]
    group: str
    """Its name or description."""
    seq: int
    """For `send` and `recv`, the number of the message on its channel."""
    op: str
    """As recorded or as called: `all_reduce`, `send 0->1`."""

    def sentence(self) -> str:
        return f"{told_ranks(self.ranks)} issued {named(self.op)} at seq {number(self.seq)} of {named(self.group)}"

    def check(self, case: Case) -> Check:
        group = claimed_group(self.group, self.ranks, case)
        if isinstance(group, Check):
            return group
        op = plain_op(self.op)
        if op in _MESSAGES:
            message, channels = (op, split_name(self.op)[2]), channels_of(self.ranks, group, case)
            found = {r: messages_at(r, group, self.seq, message, of_rank, case) for r, of_rank in channels.items()}
        else:
            found = {r: held_at(r, group, self.seq, case) for r in set(self.ranks)}
        return tally({rank: (self._judge(held, rank), held.fact) for rank, held in found.items()})

    def _judge(self, held: Held, rank: int) -> tuple[Status, str]:
        if held.status is not Status.SUPPORTED:
            return held.status, held.why
        if any(same_op(self.op, op) for op in held.ops):
            return Status.SUPPORTED, held.why
        return Status.CONTRADICTED, f"rank {rank} issued {' and '.join(held.ops)} there"


# ---------------------------------------------------------------------------------------------------------------------
# Ranks have not come to a position of a group's order at which others are.
#
# | every rank | is |
# |---|---|
# | has a dump that goes far enough, holds nothing at that seq or later, and another member is there | supported |
# | is not of the group, or was there (one of them is enough); or no member has come so far | contradicted |
# | has no dump, or one that ends early or begins later; the group is not one, or not one alone | unverifiable |
#
# Where no member has a collective of that seq, messages of that number are looked at: one end has it, the other not.


class Missing(Claim):
    """Who has not come to a position at which others are."""

    kind: Literal["missing"]
    ranks: list[int]
    group: str
    """Its name or description."""
    seq: int

    def sentence(self) -> str:
        have = "has" if len(set(self.ranks)) == 1 else "have"
        return f"{told_ranks(self.ranks)} {have} not come to seq {number(self.seq)} of {named(self.group)}"

    def check(self, case: Case) -> Check:
        group = claimed_group(self.group, self.ranks, case)
        if isinstance(group, Check):
            return group
        gaps = frozenset(group.gap(rank, self.seq) for rank in group.group.ranks)
        channels = channels_of(self.ranks, group, case)
        found = {rank: missing_at(rank, group, self.seq, gaps, of_rank, case) for rank, of_rank in channels.items()}
        return tally({rank: ((held.status, held.why), held.fact) for rank, held in found.items()})
