"""The two sides at the fork: the usual ranks, the odd ones, what both did before, and their stacks as lines of the source."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from forkpoint.diverge.cohorts import frontier_op, issued
from forkpoint.diverge.slots import sequence
from forkpoint.model.frames import bare_name, installed_path, short_name, user_frames
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Frame, Op, Stack
from forkpoint.model.trace import RankTrace, Track
from forkpoint.model.verdict import Verdict
from forkpoint.source.code import Function, Module
from forkpoint.source.flow import ControlFlow, Point
from forkpoint.source.program import Program
from forkpoint.source.syntax import Loop, enclosing

# ---------------------------------------------------------------------------------------------------------------------
# Stack frames -> lines of the given source.

_PART_OF_FUNCTION = frozenset({"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>"})


@dataclass(frozen=True, slots=True)
class CodeLine:
    function: Function
    line: int


Chain = tuple[CodeLine, ...]
"""The user frames of a stack, outermost first, whose files are part of the source."""


@dataclass(slots=True, eq=False)
class StackMap:
    """The chain of every stack, and the control flow of every function, computed once."""

    program: Program
    notes: dict[str, None] = field(default_factory=dict)
    """Frames that the source does not match, in the order in which they were found."""
    misfits: set[str] = field(default_factory=set)
    """Files whose version differs from the one that ran."""
    _flows: dict[Function, ControlFlow] = field(default_factory=dict)
    _chains: dict[Stack, Chain] = field(default_factory=dict)

    def flow(self, function: Function) -> ControlFlow:
        if function not in self._flows:
            self._flows[function] = ControlFlow(function)
        return self._flows[function]

    def chain(self, stack: Stack | None) -> Chain:
        stack = stack or ()
        if stack not in self._chains:
            found = [p for f in reversed(user_frames(stack)) if (p := self._place(f))]
            # A comprehension has a frame of its own, on the same line as the function around it.
            merged = [
                p
                for i, p in enumerate(found)
                if i == 0 or p.function is not found[i - 1].function or p.line != found[i - 1].line
            ]
            self._chains[stack] = tuple(merged)
        return self._chains[stack]

    def outside(self, *stacks: Stack | None) -> bool:
        """Whether the source calls a trainer or another package that it does not contain, in one of these stacks."""
        return any(self._calls_outside(user_frames(stack)) for stack in stacks)

    def _calls_outside(self, frames: Sequence[Frame]) -> bool:
        known = [bool(self.chain((frame,))) for frame in frames]
        return True in known and known.index(True) > 0

    def points(self, place: CodeLine) -> list[Point]:
        return self.flow(place.function).at(place.line)

    def _place(self, frame: Frame) -> CodeLine | None:
        module = self.program.module_at(frame.filename)
        function = module.function_at(frame.line) if module is not None else None
        known = function is not None and (bare_name(frame) in {function.short, *_PART_OF_FUNCTION})
        if function is not None and known and self.flow(function).at(frame.line):
            return CodeLine(function, frame.line)
        file = short_name(frame.filename)
        if module is None or _is_of_another_package(frame, module):
            self.notes.setdefault(f"{file} appears in the stacks but is not under --source")
        else:
            self.notes.setdefault(f"line {frame.line} of {file} in the stacks does not match the file under --source")
            self.misfits.add(module.path)
        return None


def _is_of_another_package(frame: Frame, module: Module) -> bool:
    """`site-packages/lightning/trainer.py`, if the source has a `trainer.py` of its own."""
    inside = installed_path(frame)
    return inside is not None and not module.path.replace("\\", "/").endswith(f"/{inside}")


def outermost(chains: Iterable[Chain]) -> Function | None:
    """The function in which all chains start, if it is the same one."""
    roots = {chain[0].function for chain in chains if chain}
    return roots.pop() if len(roots) == 1 else None


# ---------------------------------------------------------------------------------------------------------------------
# The two sides at the fork: the usual ranks, the odd ones, and what both did before.


def loops_left(after: Chain, inside: Chain) -> Iterator[tuple[Loop, Function]]:
    """Loops around the calls of `inside` that have ended when the program reaches the line at which `after` parts from
    it.
    """
    shared = next((i for i, (a, b) in enumerate(zip(after, inside, strict=False)) if a != b), None)
    if shared is None or after[shared].function is not inside[shared].function:
        return
    if after[shared].line <= inside[shared].line:
        return
    deeper = [(place, 0) for place in reversed(inside[shared + 1 :])]
    for place, line in (*deeper, (inside[shared], after[shared].line)):
        for node in enclosing(place.line, place.function):
            if isinstance(node, Loop) and (not line or line > (node.end_lineno or node.lineno)):
                yield node, place.function


@dataclass(frozen=True, slots=True)
class ForkSide:
    ranks: tuple[int, ...]
    cohort: int | None
    """Its index among the divergence's cohorts."""
    op: str | None
    """What it issued in the slot; None if nothing."""
    stack: Stack | None
    """Where it issued it; empty if from C++."""
    live: Stack | None
    """Where its main thread was when stacks were taken."""
    raised: LogEvent | None
    """The exception in its log."""
    recorded: bool
    """It has a dump, so calls that are not in it were not made."""


@dataclass(frozen=True, slots=True)
class Sides:
    usual: ForkSide
    odd: ForkSide
    before: tuple[Stack | None, ...]
    """The calls in the slots before, where the sides still agreed; nearest first."""
    same_rank: bool = False
    """The odd rank is compared with its own earlier rounds."""
    named: bool = True
    """The odd side is the one at fault; otherwise nothing shows which of the two is."""


_LOOK_BACK = 64


def find_sides(incident: Incident, verdict: Verdict) -> Sides | None:
    divergence = verdict.divergence
    if divergence is None or not divergence.cohorts:
        return None
    if divergence.channel is not None:
        return find_message_sides(incident, divergence)
    odd = _odd_cohort(divergence, verdict.suspects)
    usual = _usual_cohort(divergence, odd)
    if odd is None or usual is None:
        return None
    if divergence.how is PartingKind.ABSENCE and divergence.shift is not None and divergence.shift.by > 0:
        return _passed_sides(usual, odd, divergence, incident)
    seq = divergence.seq if divergence.shift is not None else _first_apart(usual, odd, divergence, incident)
    sides = [_side(c, seq, divergence, verdict, incident) for c in (usual, odd)]
    return Sides(sides[0], sides[1], _before(sides, seq, divergence, incident), named=bool(verdict.suspects))


def _passed_sides(usual: int, odd: int, divergence: Divergence, incident: Incident) -> Sides | None:
    """One side skipped calls of this group: its next call of any kind is compared with the first call that it skipped.
    Calls made by autograd have no frames of the program, so the first call that has some stands for them.
    """
    first, other = (divergence.cohorts[cohort].ranks[0] for cohort in (usual, odd))
    track, own = (track_of(rank, divergence, incident) for rank in (first, other))
    trace = incident.timeline.traces.get(other)
    if track is None or own is None or trace is None or divergence.shift is None or divergence.seq is None:
        return None
    tables, seq = incident.timeline.tables, divergence.seq
    skipped = [issued(track, at, tables) for at in range(seq, seq + divergence.shift.by)]
    before = [issued(own, at, tables)[1] for at in range(own.last_seq, max(own.first_seq, seq - _LOOK_BACK) - 1, -1)]
    after = _after(own.last.record_id, trace, incident)
    op, stack = next(((s.op, stack) for s, stack in skipped if s and _is_whole(stack)), ("", None))
    if stack is None or after is None:
        return None
    sides = [
        ForkSide(divergence.cohorts[place].ranks, place, made, called, live_of((rank,), incident), None, recorded=True)
        for place, rank, made, called in ((usual, first, op, stack), (odd, other, "a call", after))
    ]
    return Sides(sides[0], sides[1], tuple(filter(_is_whole, before)), named=bool(divergence.odd))


def _is_whole(stack: Stack | None) -> bool:
    """It starts at the body of the script."""
    return bool(stack) and stack is not None and stack[-1].name == "<module>"


def _after(record: int, trace: RankTrace, incident: Incident) -> Stack | None:
    """The rank's first call after this entry that has frames of the program."""
    stacks = [incident.timeline.tables.stacks.get(token) for token in trace.recent_stacks.tolist()]
    later = (s for at, s in zip(trace.recent_records.tolist(), stacks, strict=True) if at > record)
    return next(filter(_is_whole, later), None)


def _first_apart(usual: int, odd: int, divergence: Divergence, incident: Incident) -> int | None:
    """The first slot that the two sides reached from different lines, although the calls still matched."""
    visible = divergence.first_visible_seq
    tracks = [track_of(divergence.cohorts[c].ranks[0], divergence, incident) for c in (usual, odd)]
    if visible is None or tracks[0] is None or tracks[1] is None or divergence.how is not PartingKind.METADATA:
        return visible
    one, other = (sequence(t, incident.timeline.tables) for t in tracks if t)
    first = max(one.first, other.first)
    stacks = [s.stack[first - s.first : visible - s.first] for s in (one, other)]
    length = min(len(s) for s in stacks)
    apart = np.flatnonzero(stacks[0][:length] != stacks[1][:length])
    apart = apart[[_lines(stacks[0][at], incident) != _lines(stacks[1][at], incident) for at in apart]]
    # Different from the start: these ranks use different call sites.
    return first + int(apart[0]) if apart.size and apart[0] > 0 else visible


def _lines(stack: np.uint64, incident: Incident) -> tuple[tuple[str, int], ...]:
    """Frames of libraries may differ between ranks: a wrapper, another thread."""
    return tuple((f.filename, f.line) for f in user_frames(incident.timeline.tables.stacks.get(int(stack))))


def _odd_cohort(divergence: Divergence, suspects: tuple[int, ...]) -> int | None:
    odd = set(suspects or divergence.odd)
    for place, cohort in enumerate(divergence.cohorts):
        if odd & set(cohort.ranks):
            return place
    issuing = [place for place, cohort in enumerate(divergence.cohorts) if cohort.op is not None]
    if len(issuing) > 1:  # made different calls; what a rank without a dump did is not known
        return issuing[-1]
    return len(divergence.cohorts) - 1 if len(divergence.cohorts) > 1 else None


def _usual_cohort(divergence: Divergence, odd: int | None) -> int | None:
    others = [i for i in range(len(divergence.cohorts)) if i != odd]
    issuing = [i for i in others if divergence.cohorts[i].op is not None]
    return next(iter(issuing or others), None)


def _side(place: int, seq: int | None, divergence: Divergence, verdict: Verdict, incident: Incident) -> ForkSide:
    cohort = divergence.cohorts[place]
    named = tuple(r for r in cohort.ranks if r in (verdict.suspects or divergence.odd)) or cohort.ranks
    op, stack = _issued(cohort, named[0], seq, divergence, incident)
    return ForkSide(
        ranks=named,
        cohort=place,
        op=op,
        stack=stack,
        live=live_of(named, incident),
        raised=raised_by(named, incident),
        recorded=any(r in incident.timeline.traces for r in named),
    )


def live_of(ranks: tuple[int, ...], incident: Incident) -> Stack | None:
    return next((s.stack for s in incident.capture.stacks if s.rank in ranks), None)


def raised_by(ranks: tuple[int, ...], incident: Incident) -> LogEvent | None:
    said = [e for r in ranks for e in incident.said.get(r, ()) if e.stack and e.kind in _RAISED]
    return said[0] if said else None


_RAISED = frozenset({LogKind.EXCEPTION, LogKind.OUT_OF_MEMORY, LogKind.CUDA_ERROR})


def _issued(
    cohort: Cohort, rank: int, seq: int | None, divergence: Divergence, incident: Incident
) -> tuple[str | None, Stack | None]:
    track = track_of(rank, divergence, incident)
    if track is not None and seq is not None and seq != divergence.first_visible_seq:
        signature, stack = issued(track, seq, incident.timeline.tables)
        if signature is not None:
            return signature.op, stack
    return cohort.op, cohort.stack


def track_of(rank: int, divergence: Divergence, incident: Incident) -> Track | None:
    if divergence.channel is not None:
        return incident.timeline.of_channel(divergence.group, divergence.channel).end(rank)
    group = next((g for g in incident.timeline.groups if g.group == divergence.group), None)
    return group.track(rank) if group is not None else None


def _before(
    sides: list[ForkSide], seq: int | None, divergence: Divergence, incident: Incident
) -> tuple[Stack | None, ...]:
    """From the usual side, or from the odd one if the usual side has none."""
    if seq is None:
        return ()
    for side in sides:
        track = track_of(side.ranks[0], divergence, incident)
        if track is not None:
            held = range(min(seq - 1, track.last_seq), max(track.first_seq, seq - _LOOK_BACK) - 1, -1)
            found = tuple(issued(track, s, incident.timeline.tables)[1] for s in held)
            if found:
                return found
    return ()


def find_message_sides(incident: Incident, divergence: Divergence) -> Sides | None:
    """The two ends of a channel run different code, so the odd end is compared with itself: after its last message it
    should have continued to the next one, but continued to something else.
    """
    rank = next(iter(divergence.odd), None)
    track = track_of(rank, divergence, incident) if rank is not None else None
    if rank is None or track is None or divergence.seq is None:
        return None
    signature, stack = issued(track, min(divergence.seq - 1, track.last_seq), incident.timeline.tables)
    after = _next_elsewhere(stack, frontier_op(track, divergence.seq), incident.timeline.traces[rank], incident)
    if signature is None or after is None:
        return None
    cohorts = {rank in c.ranks: i for i, c in enumerate(divergence.cohorts)}
    peers = tuple(r for r in divergence.channel or () if r != rank)
    usual = ForkSide(peers, cohorts.get(False), signature.op, stack, None, None, recorded=True)
    odd = ForkSide((rank,), cohorts.get(True), "a call", after, None, None, recorded=True)
    return Sides(usual, odd, (stack,), same_rank=True)


def _next_elsewhere(stack: Stack | None, until: Op | None, trace: RankTrace, incident: Incident) -> Stack | None:
    """The rank's next call after its last one from the lines of `stack`, before the op `until`."""
    stacks = [incident.timeline.tables.stacks.get(token) for token in trace.recent_stacks.tolist()]
    records = trace.recent_records.tolist()
    end = records.index(until.record_id) if until is not None and until.record_id in records else len(stacks)
    lines = [user_frames(s) for s in stacks]
    last = next((i for i in range(end - 1, -1, -1) if lines[i] == user_frames(stack)), None)
    return next((s for s in stacks[last + 1 :] if s is not None), None) if last is not None else None
