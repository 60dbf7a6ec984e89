"""What a rank recorded at one seq of a group, and how groups and operations are named: shared by the claims."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from forkpoint.agent.case import ClaimCheck, ClaimStatus
from forkpoint.brief.calls import members_alike, tell_slot
from forkpoint.brief.case import Case, Fact, fact, is_plain, matching_groups, name_group, named, number, told_ranks
from forkpoint.diverge.cohorts import issued
from forkpoint.diverge.slots import token_at
from forkpoint.model.entries import Tables
from forkpoint.model.frames import user_place
from forkpoint.model.op import Signature, split_name
from forkpoint.model.timeline import Channel, Gap, GroupTimeline
from forkpoint.model.trace import RankTrace, Track
from forkpoint.model.world import ProcessGroup

# ---------------------------------------------------------------------------------------------------------------------
# The group that a claim names, operations as people write them, and what a rank recorded at one seq of a group.

_LISTED = 8
YES, NO, SILENT = ClaimStatus.SUPPORTED, ClaimStatus.CONTRADICTED, ClaimStatus.UNVERIFIABLE


def claimed_group(name: str, ranks: list[int], case: Case) -> GroupTimeline | ClaimCheck:
    """By name or description. Groups with the same name are told apart by their members."""
    if not ranks or not all(is_plain(rank) for rank in ranks):
        return ClaimCheck.unverifiable(f"{told_ranks(ranks)}: name valid ranks")
    meant = matching_groups(case, name)
    if not meant:
        return ClaimCheck.unverifiable(
            f"no dump has a group {named(name)}; {_listed(case.incident.timeline.groups, case)}"
        )
    holding = [g for g in meant if set(ranks) <= {*g.group.ranks, *g.maybe}]
    if len(holding) == 1:
        return holding[0]
    if holding:
        return ClaimCheck.unverifiable(f"{len(holding)} groups are called {named(name)}; {_listed(holding, case)}")
    strangers = set(ranks) - {r for g in meant for r in (*g.group.ranks, *g.maybe)}
    if strangers:
        are = "is" if len(strangers) == 1 else "are"
        why = f"{told_ranks([*strangers])} {are} not in {named(name)}; {_listed(meant, case)}"
        # If no dump declares the members, we know only those that used the group: there may be others.
        return ClaimCheck(NO if all(g.group.declared for g in meant) else SILENT, why)
    return ClaimCheck.unverifiable(f"no single group {named(name)} has all of these ranks; {_listed(meant, case)}")


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
"""Name in the program -> name that recorders use."""


_MAY_BE: Final = {
    "barrier": {"allreduce", "allgather", "broadcast"},
    "allgather": {"allgatherbase", "broadcast", "allgathercoalesced"},
    "reducescatter": {"reducescatterbase", "reduce", "reducescattercoalesced"},
    "allreduce": {"barrier", "allreducecoalesced", "reduce"},
    "gather": {"allgather", "recv", "send"},
    "scatter": {"recv", "send", "broadcast"},
    "alltoall": {"recv", "send"},
    "broadcast": {"broadcastoop", "allgather"},
}
"""Names under which some backends and releases record a call: finding one of these does not contradict the claim."""
RECORDED_OPS: Final = frozenset(
    {*_MAY_BE, *(op for ops in _MAY_BE.values() for op in ops), *_SAME.values(), "reduce", "allgatherbase", "coalesced"}
) | {"reducescatterbase"}
"""Names that recorders write. Any other name (`all_gather_object`, a function of the program) may mean one of them."""


COLLECTIVES: Final = RECORDED_OPS - {"send", "recv", "coalesced"}


def differs_from(claimed: str, held: Sequence[str]) -> bool:
    """The recorded operations are certainly another call: recorders use both names, and neither is recorded as the other."""
    one = plain_op(claimed)
    others = {plain_op(op) for op in held}
    if one not in RECORDED_OPS or not others <= RECORDED_OPS or "coalesced" in {one, *others}:
        return False
    return not any(one in _MAY_BE.get(other, ()) or other in _MAY_BE.get(one, ()) for other in others)


def same_op(one: str, two: str) -> bool:
    """`all_reduce`, `allreduce`, `ALLREDUCE` and `nccl:all_reduce` are one operation."""
    return plain_op(one) != "" and plain_op(one) == plain_op(two)


def plain_op(name: str) -> str:
    """A canonical spelling; empty if it is not the name of an operation."""
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
    Gap.NOT_REACHED: "rank {rank} has not reached seq {seq}",
}

Message = tuple[str, tuple[int, int] | None]
"""`send` or `recv`; and its source and destination within the group, if given."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the evidence says about a rank at a position. Supported: the call is recorded there."""

    status: ClaimStatus
    why: str
    ops: tuple[str, ...] = ()
    fact: Fact | None = None


def held_at(rank: int, group: GroupTimeline, seq: int, case: Case) -> Held:
    """The collective that a rank issued at `seq`."""
    gap, told = group.gap(rank, seq), f"rank {rank} {shown(group.group, case)} seq {number(seq)}"
    if rank in group.maybe:
        return Held(SILENT, f"nothing shows whether rank {rank} is in {shown(group.group, case)}")
    if gap is not None:
        status = NO if gap is Gap.NOT_REACHED else SILENT
        why = _GAPS[gap].format(rank=rank, seq=number(seq))
        return Held(status, why, fact=Fact(told, _last(group.track(rank), case)) if gap is Gap.NOT_REACHED else None)
    track, tables = group.track(rank), case.incident.timeline.tables
    token = token_at(track, seq, tables) if track is not None else None
    signatures = tables.signatures.get(token, ()) if token is not None else ()
    ops = tuple(dict.fromkeys(case.clean(s.op) for s in signatures))
    if not ops:
        return Held(SILENT, f"the dump of rank {rank} does not hold seq {number(seq)}")
    says = tell_slot(track, seq, tables, group.traces[rank].volumes) if track is not None else None
    return Held(YES, f"rank {rank} issued {' and '.join(ops)} there", ops, fact(case, told, says or ops[0]))


def other_call_there(rank: int, group: GroupTimeline, seq: int, case: Case) -> str | None:
    """Where most members made another call at this seq than the rank, or the same from another line of the program."""
    tables, mine = case.incident.timeline.tables, group.track(rank)
    own = _call_at(mine, seq, tables) if mine is not None else None
    if own is None:
        return None
    alike = others = 0
    for members in members_alike(group, case.incident.timeline):
        track = group.track(members[0])
        call = _call_at(track, seq, tables) if track is not None else None
        if call is not None:
            is_other = call[0] != own[0] or (call[1] and own[1] and call[1] != own[1])
            alike, others = alike + (0 if is_other else len(members)), others + (len(members) if is_other else 0)
    if alike > others:
        return None
    return "others made another call with this number: it may have left out theirs"


def _call_at(track: Track, seq: int, tables: Tables) -> tuple[Signature, str | None] | None:
    if token_at(track, seq, tables) is None:
        return None
    signature, stack = issued(track, seq, tables)
    return (signature, user_place(stack)) if signature is not None else None


def missing_at(
    rank: int, group: GroupTimeline, seq: int, gaps: frozenset[Gap | None], channels: Sequence[Channel], case: Case
) -> Held:
    """Supported: the rank has not reached this seq, and another member has. `gaps`: of all members at this seq; `channels`:
    of the rank.
    """
    if None in gaps:
        return _inverted(held_at(rank, group, seq, case))
    by_message = [missing_on(rank, channel, seq, case) for channel in channels]
    best = next((h for s in (YES, SILENT) for h in by_message if h.status is s), None)
    if best is not None:
        return best
    if any(gap is not Gap.NOT_REACHED for gap in gaps):
        return Held(SILENT, f"no dump shows a member at seq {number(seq)}, and not all dumps go that far")
    # No member is there, so this rank is not missing more than the others.
    return Held(SILENT, f"no member has reached seq {number(seq)}, so no rank is missing there")


def messages_at(
    rank: int, group: GroupTimeline, seq: int, message: Message, channels: Sequence[Channel], case: Case
) -> Held:
    """The message with this number that a rank sent or received on one of its channels."""
    op, peers = message
    ends = _global(peers, group) if peers is not None else None
    if peers is not None and ends is None:
        status = NO if group.group.declared else SILENT
        return Held(status, f"{shown(group.group, case)} has no members with these numbers")
    tracks: list[Track] = []
    for channel in channels:
        own = (channel.source if op == "send" else channel.destination) == rank
        track = channel.end(rank)
        if own and track is not None and (ends is None or ends == (channel.source, channel.destination)):
            tracks.append(track)
    if any(token_at(t, seq, case.incident.timeline.tables) is not None for t in tracks):
        where = f"rank {rank} {shown(group.group, case)} message {number(seq)}"
        return Held(YES, f"rank {rank} issued {op} there", (op,), Fact(where, op))
    return _unheld(rank, tracks, seq, op, case)


def _unheld(rank: int, tracks: list[Track], seq: int, op: str, case: Case) -> Held:
    trace = case.incident.timeline.traces.get(rank)
    if trace is None or rank in case.incident.timeline.blind:
        return Held(SILENT, f"no complete dump of rank {rank} was read")
    if not records_messages(trace):
        return Held(SILENT, f"the recorder of rank {rank} ({trace.comm_lib}) does not record messages")
    if trace.is_partial:
        return Held(SILENT, f"the dump of rank {rank} omits finished calls")
    if not all(t.from_start for t in tracks) or not (tracks or trace.from_start):
        return Held(SILENT, f"rank {rank}'s ring buffer no longer holds its first {op}")
    return Held(NO, f"rank {rank} has issued no {op} with number {number(seq)}")


def message_there(channel: Channel, rank: int, seq: int, case: Case) -> bool:
    """This end of the channel has a message of that number."""
    track = channel.end(rank)
    return track is not None and token_at(track, seq, case.incident.timeline.tables) is not None


def records_messages(trace: RankTrace) -> bool:
    """Gloo records only collectives, so a message that is not recorded proves nothing."""
    return trace.comm_lib not in {"gloo", ""} or bool(trace.head.channels)


def missing_on(rank: int, channel: Channel, seq: int, case: Case) -> Held:
    """Contradicted: the rank reached this message. Supported: its peer did and the rank did not."""
    timeline = case.incident.timeline
    mine = channel.end(rank)
    theirs = channel.received if rank == channel.source else channel.sent
    if mine is not None and token_at(mine, seq, timeline.tables) is not None:
        return Held(NO, f"rank {rank} reached message {number(seq)} of {_way(channel)}")
    if theirs is None or token_at(theirs, seq, timeline.tables) is None:
        return Held(SILENT, f"no dump shows the peer of rank {rank} at message {number(seq)}")
    trace = timeline.traces.get(rank) if rank not in timeline.blind else None
    whole = trace is not None and records_messages(trace) and not trace.is_partial
    counted = mine.from_start and theirs.from_start if mine is not None else trace is not None and trace.from_start
    if not whole or not counted or (mine is not None and seq <= mine.last_seq):
        return Held(SILENT, f"no dump of rank {rank} shows whether it reached message {number(seq)}")
    ends = _way(channel)
    why = f"rank {rank} has not reached message {number(seq)} of {ends}, its peer has"
    return Held(YES, why, fact=Fact(f"rank {rank} {shown(channel.group, case)} {ends}", _last(mine, case)))


def _way(channel: Channel) -> str:
    return f"{channel.source}->{channel.destination}"


def _inverted(held: Held) -> Held:
    """Supported becomes contradicted and vice versa."""
    turned = {YES: NO, NO: YES}
    return Held(turned.get(held.status, held.status), held.why, held.ops, held.fact)


def channels_of(ranks: Iterable[int], group: GroupTimeline, case: Case) -> dict[int, list[Channel]]:
    """Rank -> the channels of the group that it sends or receives on."""
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
        return "has no call recorded there"
    return f"its last is seq {track.last_seq}, {case.clean(track.last.signatures[0].op)}"


_MOST_FACTS = 4


def tally(by_rank: Mapping[int, Held]) -> ClaimCheck:
    """What contradicts the claim for one rank decides, then what leaves it open."""
    for status in (NO, SILENT, YES):
        alike = [held for _, held in sorted(by_rank.items()) if held.status is status]
        if alike:
            more = f" (the same for {len(alike)} of {len(by_rank)} ranks)" if len(alike) > 1 else ""
            facts = [held.fact for held in alike if held.fact]
            return ClaimCheck(status, f"{alike[0].why}{more}", tuple(facts[:_MOST_FACTS]))
    return ClaimCheck.unverifiable("the claim names no rank")
