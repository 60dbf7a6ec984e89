"""Claims about recorded calls: their sizes, that a rank issued nothing after one, and who is in a group."""

from typing import Literal

from forkpoint.agent.case import Claim, ClaimCheck, ClaimStatus
from forkpoint.agent.claims.held import channels_of, claimed_group, held_at, message_there, shown, tally
from forkpoint.brief.case import Case, Fact
from forkpoint.brief.naming import fact, is_plain, named, number, told_ranks
from forkpoint.diverge.cohorts import frontier_op, issued
from forkpoint.judge.hypotheses.repairs import recorded_job
from forkpoint.model.op import SIZES_FREE, Signature, numel
from forkpoint.model.timeline import GroupTimeline

_Found = tuple[tuple[ClaimStatus, str], Fact | None]

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

    def _of_rank(self, rank: int, group: GroupTimeline, case: Case) -> _Found:
        held = held_at(rank, group, self.seq, case)
        track = group.track(rank)
        if any(message_there(channel, rank, self.seq, case) for channel in channels_of([rank], group, case)[rank]):
            why = f"rank {rank} also has a message with this number: channels shows the sizes of messages"
            return (ClaimStatus.UNVERIFIABLE, why), held.fact
        if held.status is not ClaimStatus.SUPPORTED or track is None:
            return (held.status, held.why), held.fact
        op = frontier_op(track, self.seq)
        if op is not None and len(op.signatures) > 1:
            return (ClaimStatus.UNVERIFIABLE, f"rank {rank} issued several coalesced calls there"), held.fact
        whole = next(iter(op.signatures)) if op is not None else None
        signature = whole or issued(track, self.seq, case.incident.timeline.tables)[0]
        if signature is None or (whole is None and signature.op in SIZES_FREE):
            return (ClaimStatus.UNVERIFIABLE, f"the sizes of rank {rank}'s own call are no longer kept"), held.fact
        return self._compare(rank, signature, is_own=whole is not None), held.fact

    def _compare(self, rank: int, signature: Signature, *, is_own: bool) -> tuple[ClaimStatus, str]:
        """`is_own`: the rank's own sizes. Otherwise another member's, which must have the same number of elements only."""
        claimed = [(self.input, signature.input_sizes), (self.output, signature.output_sizes)]
        pairs = [(tuple(map(tuple, asked)), recorded) for asked, recorded in claimed if asked]
        told = f"rank {rank} passed {_told(signature.input_sizes or signature.output_sizes)} there"
        if any(not recorded for _, recorded in pairs):
            return ClaimStatus.UNVERIFIABLE, f"{told}; the record keeps no more"
        if any(not _is_size(asked) or numel(asked) != numel(recorded) for asked, recorded in pairs):
            return ClaimStatus.CONTRADICTED, told
        if not is_own or all(asked == recorded for asked, recorded in pairs):
            return ClaimStatus.SUPPORTED, told
        return ClaimStatus.UNVERIFIABLE, f"{told}: the same number of elements in another shape"


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

    def _of_rank(self, rank: int, group: GroupTimeline, case: Case) -> _Found:
        timeline, track = case.incident.timeline, group.track(rank)
        last = track.last_seq if track is not None else 0
        if track is not None and last > self.seq:
            says = f"rank {rank} went on to seq {last}"
            return (ClaimStatus.CONTRADICTED, says), fact(case, f"rank {rank} {shown(group.group, case)}", says)
        trace = timeline.traces.get(rank)
        if trace is None or rank in timeline.blind or rank in group.maybe or trace.is_partial:
            return (ClaimStatus.UNVERIFIABLE, f"no complete dump of rank {rank} in this group was read"), None
        if rank in timeline.stands and rank not in timeline.entering:
            open_at = timeline.positions[rank][0]
            says = f"rank {rank} waits in {open_at.op.signatures[0].op} seq {open_at.op.seq} of {open_at.group}"
            return (ClaimStatus.CONTRADICTED, case.clean(says)), fact(
                case, f"{trace.file} entry {open_at.op.record_id}", says
            )
        if rank in timeline.entering or rank in recorded_job(case.incident).elsewhere:
            return (ClaimStatus.UNVERIFIABLE, f"rank {rank} may be inside a call that its dump does not show"), None
        if last < self.seq:
            held = held_at(rank, group, self.seq, case)
            return (held.status, held.why), held.fact
        says = f"rank {rank}'s last call is seq {last}, and all its calls are done"
        return (ClaimStatus.SUPPORTED, says), fact(case, f"rank {rank} {shown(group.group, case)}", says)


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
        return ClaimCheck(ClaimStatus.SUPPORTED, told.says, (told,))
