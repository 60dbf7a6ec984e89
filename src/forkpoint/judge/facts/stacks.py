"""What stacks show: what blocks a rank, where ranks were, where their call paths part, and which exception led there."""

import re
from collections import Counter

from msgspec import Struct, structs

from forkpoint.diverge.cohorts import unrecorded_divergence
from forkpoint.evidence.stacks.shapes import Shape, find_last_call, find_shape
from forkpoint.evidence.stacks.threads import ends_in_program
from forkpoint.judge.facts.blame import blames_peers
from forkpoint.judge.facts.calls import outvoted_side
from forkpoint.judge.facts.cite import cite_event, cite_stack
from forkpoint.model.capture import SourceFacts
from forkpoint.model.frames import (
    Lines,
    bare_name,
    in_side_thread,
    is_made_by_torch,
    is_python,
    is_standard,
    line_and_name,
    outside_c10d,
    place_of,
    program_lines,
    short_name,
    up_to_script,
)
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind, Role, fact
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Evidence

# ---------------------------------------------------------------------------------------------------------------------
# What a rank that does not come is doing, from its live stack.

_STALL_SHAPES = (
    Shape.FILE_IO,
    Shape.NETWORK_IO,
    Shape.LOCK,
    Shape.LOADER,
    Shape.COMPILE,
    Shape.SUBPROCESS,
    Shape.SLEEP,
)
_COMPUTES = ("torch/nn/modules/", "torch/nn/functional.py", "torch/optim/", "torch/_tensor.py", "torch/functional.py")
_STORAGE_SHAPES = (Shape.FILE_IO, Shape.NETWORK_IO)
# A wait is often wrapped: the names of the user's functions then say more than the lock at the end.
_STORAGE_NAMES = re.compile(r"upload|download|save|write|read|open|flush|fsync|checkpoint|fetch|mount", re.IGNORECASE)

_OF_OTHERS = re.compile(r"lock|acquire|barrier|wait|poll|until|peer|rank|master|sync", re.IGNORECASE)
"""In names of functions: what they wait for may belong to another rank."""


def is_communicating(stack: Stack) -> bool:
    """It waits for others; it is not itself the one that stalls."""
    return find_shape(stack) in (Shape.COLLECTIVE, Shape.COMM_INIT, Shape.DESTROY)


def is_waiting_for_ranks(stack: Stack) -> bool:
    """In a communication call, or in a backward pass, in which C++ makes them."""
    return is_communicating(stack) or next((bare_name(f) for f in stack if is_python(f)), "") == "_engine_run_backward"


def is_making_group(stack: Stack) -> bool:
    return find_shape(stack) is Shape.COMM_INIT


def waits_for_gpu(stack: Stack) -> bool:
    return find_shape(stack) is Shape.CUDA_SYNC


def is_stalling(stack: Stack) -> bool:
    """It waits for something that is neither a rank nor a GPU. Plain Python code may be either, so it does not count."""
    return find_shape(stack) in _STALL_SHAPES


def is_at_work(stack: Stack) -> bool:
    """It is inside a call that waits for no rank and no GPU: a known stall, or one of Python's own library. A line of
    the user's code may call anything, including `work.wait()`.
    """
    return is_stalling(stack) or (find_shape(stack) is Shape.PYTHON and is_standard(stack[0]))


def is_computing(stack: Stack) -> bool:
    """Inside a torch layer or function that computes, and outside torch's communication. On a GPU such a line may wait
    for communication.
    """
    inside = place_of(stack[0]) if stack else ""
    return find_shape(stack) is Shape.PYTHON and any(part in inside for part in _COMPUTES)


def is_in_storage(stack: Stack) -> bool:
    return find_shape(stack) in _STORAGE_SHAPES or any(_STORAGE_NAMES.search(frame.name) for frame in stack)


def is_in_io(stack: Stack) -> bool:
    """It waits for a service or a file, not for a lock on one."""
    return find_shape(stack) in _STORAGE_SHAPES and not any(_OF_OTHERS.search(f.name) for f in stack)


# ---------------------------------------------------------------------------------------------------------------------
# Where ranks were, without their dumps: live stacks, and the tracebacks that ended calls.

_C10D = "distributed_c10d.py"
_BARRIERS = frozenset({"barrier", "monitored_barrier"})

_COMPLETES_ALONE = frozenset({"broadcast", "broadcast_object_list", "reduce", "gather", "gather_object", "scatter"})
"""A rank can finish its part of these while others are still in them."""


class Standing(Struct, frozen=True):
    rank: int
    stack: Stack
    evidence: Evidence
    code: str = ""
    """The line of the user's innermost frame, if a traceback printed it."""
    fixed_sizes: bool = False
    """The source shows that the call has the same size on all ranks."""
    of_whole_job: bool = False
    """The source shows that it is a call of all ranks."""

    @property
    def place(self) -> Lines:
        return program_lines(self.stack)

    @property
    def called(self) -> str:
        """The torch.distributed function that it is in."""
        inside = [f for f in find_last_call(self.stack) if f.filename.endswith(_C10D)]
        return next((bare_name(f) for f in inside if bare_name(f) != "wrapper"), "a call")

    @property
    def may_end_alone(self) -> bool:
        return self.called in _COMPLETES_ALONE

    @property
    def brings_sizes(self) -> bool:
        """Whether the program chose the sizes of the call that it is in. It does not if the call carries no data (a
        barrier), agrees on its sizes first (the calls for objects), or is made by torch for a model that is the same
        on all ranks.
        """
        if self.fixed_sizes:
            return False
        if not any(f.filename.endswith(_C10D) for f in self.stack):
            return not is_waiting_for_ranks(self.stack)
        return self.called not in _BARRIERS and "object" not in self.called and not is_made_by_torch(self.stack)


@fact
def find_standings(incident: Incident) -> dict[int, Standing]:
    """By rank: its live stack (of several, the last file's), else the traceback of the call that its peers made fail,
    unless that may belong to another attempt than the dumps.
    """
    found: dict[int, Standing] = {}
    for event in () if incident.capture.may_mix_attempts else incident.capture.events:
        if event.rank is not None and event.rank not in found and _tells_place(event):
            found[event.rank] = Standing(event.rank, event.stack, cite_event(event), event.detail("code") or "")
    for live in sorted(incident.capture.stacks, key=lambda one: (one.file, one.line)):
        found[live.rank] = Standing(live.rank, live.stack, cite_stack(live))
    return {rank: _by_source(standing, incident.capture.source) for rank, standing in found.items()}


def _by_source(standing: Standing, source: SourceFacts) -> Standing:
    place = standing.place
    return structs.replace(standing, fixed_sizes=place in source.fixed_sizes, of_whole_job=place in source.of_whole_job)


def find_all_standings(incident: Incident) -> dict[int, Standing]:
    """For every rank of the job; empty if one of them is not seen, or if more ranks may exist than are counted."""
    standings, world = find_standings(incident), incident.timeline.world
    seen = incident.timeline.unseen <= 1 and standings.keys() >= set(world)
    return {rank: standings[rank] for rank in world} if seen else {}


def _tells_place(event: LogEvent) -> bool:
    """A traceback whose exception was caused by peers or by a person who interrupted it shows where the main thread
    was. Models that differ are reported after the call that compares them.
    """
    if event.kind is LogKind.MODELS_DIFFER:
        return False
    interrupted = event.exception == "KeyboardInterrupt"
    ended = event.exception is not None and (blames_peers(event) or event.kind is LogKind.SIZES_DIFFER or interrupted)
    return ended and bool(event.stack) and not in_side_thread(event.stack)


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that all wait in a communication call, at different places of one program: where their call paths part, and who
# is odd.
#
# Paths are compared from the outermost frame inwards: where they first differ, one side took another branch. That holds
# for calls of the whole job. A rank that waits for a part of the job (a tensor-parallel peer, a pipeline stage) is
# where its peers left it, so nobody is named if the stacks show such groups.

MESSAGES = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
_OF_A_PART = re.compile(
    r"tensor_parallel|pipeline|pipelining|parallel_state|megatron|mesh|expert|moe|schedules?\b|_group\b|sub_?group"
    r"|\b(?:tp|pp|dp|ep|cp)_", re.IGNORECASE
)  # fmt: skip
_LEAST = 3
"""Minimum number of ranks that can outvote another."""
_Turn = tuple[str, str, int]
_MISFIT_ENDS_A_RANK = frozenset({"all_gather"})
"""For gloo: whichever rank uses another size in these, the library ends one process. Measured for each rank of 3 and 4,
with more and with less data. Other calls can complete on ranks that sent less: an all_reduce of few elements is
split into messages of the same length, only into more of them.
"""


class PartedStacks(Struct, frozen=True):
    standings: dict[int, Standing]
    odd: tuple[int, ...]
    frame: Frame
    """The frame of the first odd rank in which its path leaves that of the others."""
    behind: tuple[int, ...]
    """Ranks whose line comes earlier in the function in which the paths part. All ranks if they part between functions:
    then their order is not known.
    """
    none_was_ended: bool
    """Gloo is used, and it ended no rank for a size that does not match."""

    @property
    def cannot_misfit(self) -> bool:
        """Gloo completes some calls on ranks that used a smaller tensor. They continue to a later call, which looks
        like another path. That is ruled out if the ranks behind wait in a call whose sizes cannot differ, or in one
        that ends a rank if they do.
        """
        return not any(self._may_misfit(self.standings[rank]) for rank in self.behind)

    def _may_misfit(self, standing: Standing) -> bool:
        would_end_a_rank = self.none_was_ended and standing.called in _MISFIT_ENDS_A_RANK
        return standing.brings_sizes and not would_end_a_rank

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Where the odd ranks are, and some of the others."""
        return tuple(self.standings[rank].evidence for rank in (*self.odd[:2], *self.divergence.sides[0][:2]))

    @property
    def place(self) -> str:
        return line_and_name(self.frame)

    @property
    def divergence(self) -> Divergence:
        world = tuple(sorted(self.standings))
        usual = tuple(rank for rank in world if rank not in self.odd)
        cohorts = tuple(
            Cohort(side, Role.WAITING, self.standings[side[0]].called, stack=self.standings[side[0]].stack)
            for side in (usual, self.odd)
        )
        return unrecorded_divergence(PartingKind.METADATA, cohorts, self.odd)


@fact
def find_parted_stacks(incident: Incident) -> PartedStacks | None:
    """None unless every rank of the job is seen, all wait for others, and most of them took the same branch."""
    return _part(find_all_standings(incident), incident)


@fact
def find_parted_stacks_of_most(incident: Incident) -> PartedStacks | None:
    """Some ranks may not be seen, if those that took another branch would be outvoted even with them. A rank that is
    not seen may have blocked the others, but cannot have let some of them pass a call in which the rest still waits:
    none of these ends before all ranks reach it.
    """
    standings = {r: s for r, s in find_standings(incident).items() if r in incident.timeline.world}
    parted = _part(standings, incident)
    passed = parted is None or any(standings[rank].may_end_alone for rank in parted.behind)
    return None if passed else parted


def _part(standings: dict[int, Standing], incident: Incident) -> PartedStacks | None:
    if len(standings) < _LEAST or not all(waits_for_all(one) for one in standings.values()):
        return None
    paths = {rank: _path(standing) for rank, standing in standings.items()}
    depth = next((d for d in range(min(map(len, paths.values()))) if len({p[d] for p in paths.values()}) > 1), None)
    if depth is None:
        return None
    turns = {rank: path[depth] for rank, path in sorted(paths.items())}
    usual, times = Counter(turns.values()).most_common(1)[0]
    odd = tuple(rank for rank in turns if turns[rank] != usual)
    unseen = incident.timeline.unseen + len(incident.timeline.world) - len(standings)
    if times <= len(odd) + unseen or len({turns[rank] for rank in odd}) > 1:
        return None
    if {one.called for one in standings.values()} <= _BARRIERS:
        return None  # barriers on two lines can match, as those of `main_process_first` do: a rank came after others had given up
    frames = up_to_script(tuple(f for f in standings[odd[0]].stack if is_python(f)))[::-1]
    return PartedStacks(standings, odd, frames[depth], _behind(turns, usual, odd), _none_was_ended(incident))


def _none_was_ended(incident: Incident) -> bool:
    events = incident.capture.events
    ended = any(e.kind in (LogKind.SIZES_DIFFER, LogKind.CRASHED) for e in events)
    return not ended and any(e.kind is LogKind.PEER_TIMEOUT and e.detail("direction") for e in events)


def _behind(turns: dict[int, _Turn], usual: _Turn, odd: tuple[int, ...]) -> tuple[int, ...]:
    if usual[:2] != turns[odd[0]][:2]:
        return tuple(turns)
    return odd if turns[odd[0]][2] < usual[2] else tuple(rank for rank in turns if rank not in odd)


def waits_for_all(standing: Standing) -> bool:
    """It waits for the whole job, and its stack is complete."""
    return is_waiting_for_ranks(standing.stack) and ends_in_program(standing.stack) and not _is_of_a_part(standing)


def _path(standing: Standing) -> list[_Turn]:
    """Outermost first, up to the torch.distributed call: inside it ranks play different parts, as at the start of a
    job.
    """
    frames = up_to_script(tuple(f for f in outside_c10d(standing.stack) if is_python(f)))
    return [(short_name(f.filename), bare_name(f), f.line) for f in reversed(frames)]


def _is_of_a_part(standing: Standing) -> bool:
    if standing.of_whole_job:
        return False
    named = any(_OF_A_PART.search(f"{short_name(f.filename)} {f.name}") for f in standing.stack)
    inside = {bare_name(frame) for frame in find_last_call(standing.stack)}
    return named or bool(inside & MESSAGES) or "group" in standing.code


# ---------------------------------------------------------------------------------------------------------------------
# Two sides made different calls, and some members have no dump: their stacks may show which call they made.


def find_odd_by_stacks(divergence: Divergence, incident: Incident) -> tuple[int, ...]:
    """The odd ranks, counting also members that are at the line from which one side made its call and not at the
    other's. All had finished the slot before, so this is the call that they are in.
    """
    if divergence.odd or divergence.channel or len(divergence.sides) != 2 or divergence.how is not PartingKind.METADATA:
        return ()
    standings = find_standings(incident)
    places = [
        {program_lines(c.stack) for c in divergence.cohorts if c.stack and set(c.ranks) <= set(side)} - {()}
        for side in divergence.sides
    ]
    if not _hosts_wait_there(divergence, places, incident):
        return ()
    seen = {r: standings[r].place for r in divergence.unknown if _stands_waiting(standings.get(r))}
    votes = [
        len(side) + sum(place in own and place not in other for place in seen.values())
        for side, own, other in zip(divergence.sides, places, places[::-1], strict=True)
    ]
    return outvoted_side(votes, divergence, incident) if all(places) else ()


def _hosts_wait_there(divergence: Divergence, places: list[set[Lines]], incident: Incident) -> bool:
    """Whether a host at a line is in the slot. Gloo's calls block. NCCL's do not, and hosts run ahead: there, a rank of
    each side must be seen at the line of its own recorded call.
    """
    traces, standings = incident.timeline.traces, find_standings(incident)
    if all(traces[rank].comm_lib == "gloo" for side in divergence.sides for rank in side):
        return True
    seen = [[standings[rank].place for rank in side if rank in standings] for side in divergence.sides]
    return all(any(place in own for place in stood) for stood, own in zip(seen, places, strict=True))


def find_elsewhere_by_stacks(divergence: Divergence, incident: Incident) -> tuple[int, ...]:
    """Some wait in a call of the whole job. Of the members whose dumps are lost: those that wait in another call by
    their stacks, if all of them are seen and they are fewer than those in the first. Not if sizes may be what
    differs: gloo completes a call on ranks that sent less, and those continue.
    """
    if divergence.odd or divergence.channel or divergence.how is not PartingKind.ABSENCE or len(divergence.sides) != 1:
        return ()
    standings, present = find_standings(incident), divergence.sides[0]
    places = {program_lines(c.stack) for c in divergence.cohorts if c.op and c.stack} - {()}
    unknown = {rank: standings.get(rank) for rank in divergence.unknown}
    if not places or not unknown or not all(s is not None and waits_for_all(s) for s in unknown.values()):
        return ()
    if not _hosts_wait_there(divergence, [places], incident):
        return ()
    elsewhere = tuple(rank for rank, s in unknown.items() if s is not None and s.place not in places)
    if any(may_be_behind(standings[rank], present, incident) for rank in elsewhere):
        return ()
    unseen = 0 if divergence.group.declared else incident.timeline.unseen
    refused = any(e.kind is LogKind.SIZES_DIFFER for e in incident.capture.events)
    misfits = refused or any(standings[rank].brings_sizes for rank in elsewhere)
    present_too = len(unknown) - len(elsewhere)
    return elsewhere if len(present) + present_too > len(elsewhere) + unseen and not misfits else ()


def may_be_behind(standing: Standing, others: tuple[int, ...], incident: Incident) -> bool:
    """It waits in a call that the others have made from the same line and can have finished without it: then it is not
    on another path, but in an earlier call. Dumps of active calls do not show what was finished.
    """
    timeline = incident.timeline
    if not standing.may_end_alone:
        return False
    traces = [timeline.traces[rank] for rank in others if rank in timeline.traces]
    keys = {int(key) for trace in traces for key in trace.recent_stacks}
    return any(trace.is_partial for trace in traces) or any(
        program_lines(timeline.tables.stacks.get(key)) == standing.place for key in keys
    )


def _stands_waiting(standing: Standing | None) -> bool:
    return standing is not None and is_waiting_for_ranks(standing.stack)
