"""Claims about recorded calls: ranks issued an operation or have not reached it, its sizes, nothing came after it, who is in a group."""

from dataclasses import replace
from typing import Literal

from forkpoint.agent.case import Claim, ClaimCheck, ClaimStatus
from forkpoint.agent.claims.held import (
    COLLECTIVES,
    NO,
    SILENT,
    YES,
    Held,
    channels_of,
    claimed_group,
    differs_from,
    held_at,
    message_there,
    messages_at,
    missing_at,
    missing_on,
    other_call_there,
    plain_op,
    same_op,
    shown,
    tally,
)
from forkpoint.brief.case import Case, fact, is_plain, named, number, told_ranks
from forkpoint.diverge.cohorts import frontier_op, issued
from forkpoint.judge.hypotheses.repairs import recorded_job
from forkpoint.model.op import SIZES_FREE, Signature, numel, split_name
from forkpoint.model.timeline import GroupTimeline

# ---------------------------------------------------------------------------------------------------------------------
# Ranks issued an operation at one seq of a group.
#
# | every rank | is |
# |---|---|
# | recorded an op with that name at that seq of the group | supported |
# | is not in the declared group, recorded another op there, or has not come that far (one rank is enough) | contradicted |
# | has no dump, or one that no longer holds the seq; recorded a name that the claimed op may have; its recorder keeps no
#   messages (gloo); the group is unknown or ambiguous | unverifiable |
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

    def check(self, case: Case) -> ClaimCheck:
        group = claimed_group(self.group, self.ranks, case)
        if isinstance(group, ClaimCheck):
            return group
        op = plain_op(self.op)
        if op in _MESSAGES:
            message, channels = (op, split_name(self.op)[2]), channels_of(self.ranks, group, case)
            found = {r: messages_at(r, group, self.seq, message, of_rank, case) for r, of_rank in channels.items()}
        else:
            found = {r: held_at(r, group, self.seq, case) for r in set(self.ranks)}
            if op not in COLLECTIVES:  # a batch of messages has a number of its own
                found = {
                    r: Held(SILENT, f"{h.why}, but {named(self.op)} may have other numbers") if h.status is NO else h
                    for r, h in found.items()
                }
        return tally({rank: self._judge(held, rank) for rank, held in found.items()})

    def _judge(self, held: Held, rank: int) -> Held:
        if held.status is not YES or any(same_op(self.op, op) for op in held.ops):
            return held
        other = f"rank {rank} issued {' and '.join(held.ops)} there"
        if differs_from(self.op, held.ops):
            return replace(held, status=NO, why=other)
        return replace(held, status=SILENT, why=f"{other}; {named(self.op)} may be recorded under that name")


# ---------------------------------------------------------------------------------------------------------------------
# Ranks have not reached a seq of a group that other members have reached.
#
# | every rank | is |
# |---|---|
# | has a dump that goes far enough and holds nothing at that seq or later, and another member reached it | supported |
# | is not in the declared group, or made the same call there as the others (one rank is enough) | contradicted |
# | made another call there than others, so that it may have left one out; has no dump, or one that ends early or begins later; no member has come that far; the group is ambiguous | unverifiable |
#
# If no member has a collective with that seq, messages with that number are compared: one end has it, the other does not.


class Missing(Claim):
    """Who has not reached a call that others have."""

    kind: Literal["missing"]
    ranks: list[int]
    group: str
    """Its name or description."""
    seq: int
    """With a channel, the number of the message on it."""
    channel: list[int] | None = None
    """[source, destination] of a message, as global ranks."""

    def sentence(self) -> str:
        have = "has" if len(set(self.ranks)) == 1 else "have"
        if self.channel is not None:
            way = "->".join(map(number, self.channel[:2]))
            return f"{told_ranks(self.ranks)} {have} not reached message {number(self.seq)} of {way} in {named(self.group)}"
        return f"{told_ranks(self.ranks)} {have} not reached seq {number(self.seq)} of {named(self.group)}"

    def check(self, case: Case) -> ClaimCheck:
        group = claimed_group(self.group, self.ranks, case)
        if isinstance(group, ClaimCheck):
            return group
        if self.channel is not None:
            return self._check_channel(group, self.channel, case)
        gaps = frozenset(group.gap(rank, self.seq) for rank in group.group.ranks)
        channels = channels_of(self.ranks, group, case)
        found = {rank: missing_at(rank, group, self.seq, gaps, of_rank, case) for rank, of_rank in channels.items()}
        found = {rank: self._if_same_call(rank, held, group, case) for rank, held in found.items()}
        return tally(found)

    def _if_same_call(self, rank: int, held: Held, group: GroupTimeline, case: Case) -> Held:
        """A rank that left out a call gives its number to the next one: that it has another call there contradicts nothing."""
        other = other_call_there(rank, group, self.seq, case) if held.status is NO else None
        return replace(held, status=SILENT, why=f"{held.why}, but {other}") if other else held

    def _check_channel(self, group: GroupTimeline, channel: list[int], case: Case) -> ClaimCheck:
        found: dict[int, Held] = {}
        for rank, of_rank in channels_of(self.ranks, group, case).items():
            meant = [c for c in of_rank if [c.source, c.destination] == channel]
            nothing = Held(SILENT, f"neither end of this channel of rank {rank} has a recorded message")
            found[rank] = missing_on(rank, meant[0], self.seq, case) if meant else nothing
        return tally(found)


# ---------------------------------------------------------------------------------------------------------------------
# Claims about recorded calls: their sizes, that a rank issued nothing after one, and who is in a group.

# ---------------------------------------------------------------------------------------------------------------------
# Ranks passed tensors of these sizes to a call.
#
# | every rank's record of the call | is |
# |---|---|
# | has these sizes; or, for a call done long ago, this number of elements where all members must agree on it | supported |
# | has another number of elements (one rank is enough); or the rank has not reached the call | contradicted |
# | is missing, or the rank has a message with this number, too; is kept without sizes; has the same number of elements in another shape; is a coalesced call | unverifiable |
#
# Splits are claimed as sizes: for an all_to_all, recorders keep the total sent and received, or one size per peer.


class Sizes(Claim):
    """Which sizes ranks passed to a call."""

    kind: Literal["sizes"]
    ranks: list[int]
    group: str
    """Its name or description."""
    seq: int
    input: list[list[int]] | None = None
    """One list per tensor; null: not claimed."""
    output: list[list[int]] | None = None

    def sentence(self) -> str:
        told = [f"{way} {_told(sizes)}" for way, sizes in (("input", self.input), ("output", self.output)) if sizes]
        return (
            f"{told_ranks(self.ranks)} passed {' and '.join(told) or 'nothing'} to seq {number(self.seq)} of "
            f"{named(self.group)}"
        )

    def check(self, case: Case) -> ClaimCheck:
        if not self.input and not self.output:
            return ClaimCheck.unverifiable("name the sizes of the input or of the output")
        group = claimed_group(self.group, self.ranks, case)
        if isinstance(group, ClaimCheck):
            return group
        return tally({rank: self._of_rank(rank, group, case) for rank in set(self.ranks)})

    def _of_rank(self, rank: int, group: GroupTimeline, case: Case) -> Held:
        held = held_at(rank, group, self.seq, case)
        track = group.track(rank)
        if any(message_there(channel, rank, self.seq, case) for channel in channels_of([rank], group, case)[rank]):
            why = f"rank {rank} also has a message with this number: channels shows the sizes of messages"
            return replace(held, status=SILENT, why=why)
        if held.status is not YES or track is None:
            return held
        op = frontier_op(track, self.seq)
        if op is not None and len(op.signatures) > 1:
            return replace(held, status=SILENT, why=f"rank {rank} issued several coalesced calls there")
        whole = next(iter(op.signatures)) if op is not None else None
        signature = whole or issued(track, self.seq, case.incident.timeline.tables)[0]
        if signature is None or (whole is None and signature.op in SIZES_FREE):
            return replace(held, status=SILENT, why=f"the sizes of rank {rank}'s own call are no longer kept")
        status, why = self._compare(rank, signature, is_own=whole is not None)
        return replace(held, status=status, why=why)

    def _compare(self, rank: int, signature: Signature, *, is_own: bool) -> tuple[ClaimStatus, str]:
        """`is_own`: the rank's own sizes. Otherwise another member's, which must have the same number of elements only."""
        claimed = [(self.input, signature.input_sizes), (self.output, signature.output_sizes)]
        pairs = [(tuple(map(tuple, asked)), recorded) for asked, recorded in claimed if asked]
        told = f"rank {rank} passed {_told(signature.input_sizes or signature.output_sizes)} there"
        if any(not recorded for _, recorded in pairs):
            return SILENT, f"{told}; the record keeps no more"
        if any(not _is_size(asked) or numel(asked) != numel(recorded) for asked, recorded in pairs):
            return NO, told
        if not is_own or all(asked == recorded for asked, recorded in pairs):
            return YES, told
        return SILENT, f"{told}: the same number of elements in another shape"


def _is_size(sizes: tuple[tuple[int, ...], ...]) -> bool:
    return all(is_plain(number) for size in sizes for number in size)


_MOST_SIZES = 4


def _told(sizes: tuple[tuple[int, ...], ...] | list[list[int]]) -> str:
    more = f" and {len(sizes) - _MOST_SIZES} more" if len(sizes) > _MOST_SIZES else ""
    return " ".join(f"[{', '.join(map(number, size[:_MOST_SIZES]))}]" for size in sizes[:_MOST_SIZES]) + more


# ---------------------------------------------------------------------------------------------------------------------
# Ranks issued nothing after a call, and have no unfinished call.
#
# | every rank's dump | is |
# |---|---|
# | is complete, ends with that seq of the group, and has no unfinished call | supported |
# | has a later call of the group, or an unfinished one; or is complete and does not reach that seq | contradicted |
# | is missing, cut off, or omits finished calls; or the rank's stack is in a call that no dump records | unverifiable |


class NothingFurther(Claim):
    """Ranks issued no call after this one, and have no unfinished call."""

    kind: Literal["nothing-further"]
    ranks: list[int]
    group: str
    """Its name or description."""
    seq: int
    """The last that they issued."""

    def sentence(self) -> str:
        return f"{told_ranks(self.ranks)} issued nothing after seq {number(self.seq)} of {named(self.group)}, and no call is open"

    def check(self, case: Case) -> ClaimCheck:
        group = claimed_group(self.group, self.ranks, case)
        if isinstance(group, ClaimCheck):
            return group
        return tally({rank: self._of_rank(rank, group, case) for rank in set(self.ranks)})

    def _of_rank(self, rank: int, group: GroupTimeline, case: Case) -> Held:
        timeline, track = case.incident.timeline, group.track(rank)
        last = track.last_seq if track is not None else 0
        where = f"rank {rank} {shown(group.group, case)}"
        if track is not None and last > self.seq:
            says = f"rank {rank} went on to seq {last}"
            return Held(NO, says, fact=fact(case, where, says))
        trace = timeline.traces.get(rank)
        if trace is None or rank in timeline.blind or rank in group.maybe or trace.is_partial:
            return Held(SILENT, f"no complete dump of rank {rank} in this group was read")
        if rank in timeline.stands and rank not in timeline.entering:
            open_at = timeline.positions[rank][0]
            says = f"rank {rank} waits in {open_at.op.signatures[0].op} seq {open_at.op.seq} of {open_at.group}"
            return Held(NO, case.clean(says), fact=fact(case, f"{trace.file} entry {open_at.op.record_id}", says))
        if rank in timeline.entering or rank in recorded_job(case.incident).elsewhere:
            return Held(SILENT, f"rank {rank} may be inside a call that its dump does not show")
        if last < self.seq:
            return held_at(rank, group, self.seq, case)
        says = f"rank {rank}'s last call is seq {last}, and all its calls are done"
        return Held(YES, says, fact=fact(case, where, says))


# ---------------------------------------------------------------------------------------------------------------------
# Ranks are members of a group.
#
# | the group of that name | is |
# |---|---|
# | has all of them, as a dump declares, or because they used it | supported |
# | is declared by a dump, and one of them is not in it | contradicted |
# | is not declared or not recorded; or several groups share the name, and none has them all | unverifiable |


class MemberOf(Claim):
    """Ranks are in a group."""

    kind: Literal["member"]
    ranks: list[int]
    group: str
    """Its name or description."""

    def sentence(self) -> str:
        return f"{told_ranks(self.ranks)} {'is' if len(set(self.ranks)) == 1 else 'are'} in {named(self.group)}"

    def check(self, case: Case) -> ClaimCheck:
        group = claimed_group(self.group, self.ranks, case)
        if isinstance(group, ClaimCheck):
            return group
        if not set(self.ranks) <= set(group.group.ranks):
            return ClaimCheck.unverifiable(f"no dump says whether all of them are in {shown(group.group, case)}")
        told = fact(case, shown(group.group, case), f"its members are {told_ranks(group.group.ranks)}")
        return ClaimCheck(YES, told.says, (told,))
