"""Which rank is where, ranks in the same place together; and who waits in which call, for whom, and the cycle if there is one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from forkpoint.brief.calls import tell_op
from forkpoint.brief.case import (
    Case,
    Fact,
    QuestionRefused,
    answer,
    fact,
    name_group,
    name_module,
    plain_name,
    shortened,
)
from forkpoint.diverge.waits import find_cycle, find_waits
from forkpoint.evidence.stacks.shapes import find_shape
from forkpoint.judge.facts.contrast import find_lines
from forkpoint.judge.hypotheses.repairs import recorded_job
from forkpoint.model.capture import LiveStack
from forkpoint.model.frames import is_python, line_and_name, up_to_script, user_frames
from forkpoint.model.op import Frame, Op, Stack
from forkpoint.model.timeline import Position, Timeline
from forkpoint.model.trace import Track
from forkpoint.model.world import ProcessGroup, name_ranks
from forkpoint.replay import Slot

_RANGES = 6
_CALLS = 3
_FRAMES = 5
_THREADS = 3
_ENTRIES = 24
_SLOTS = 8
_LONG = 120


@dataclass(slots=True)
class SeenTogether:
    """Ranks that are in the same place."""

    calls: tuple[Position, ...]
    """Those of the first rank: its open calls, else the last one that it finished."""
    are_open: bool
    live: tuple[LiveStack, ...]
    ranks: list[int] = field(default_factory=list)
    slots: dict[tuple[int, str, str], list[int]] = field(default_factory=dict)
    """(Which of the calls, what it is, its group and number) -> ranks."""


def find_standings(case: Case) -> list[SeenTogether]:
    """Suspects and members of small cohorts first."""
    timeline = case.incident.timeline
    live: dict[int, list[LiveStack]] = {}
    for stack in case.incident.capture.stacks:
        live.setdefault(stack.rank, []).append(stack)
    finished = find_last_finished(timeline, {rank for rank in timeline.world if not timeline.positions.get(rank)})
    found: dict[object, SeenTogether] = {}
    for rank in timeline.world:
        calls = tuple(timeline.positions.get(rank, ()))[:_CALLS]
        are_open = bool(calls)
        calls = calls or ((finished[rank],) if rank in finished else ())
        seen = tuple(live.get(rank, ()))
        key = (are_open, rank in timeline.blind, *map(_call_key, calls), *map(_stack_key, seen))
        one = found.setdefault(key, SeenTogether(calls, are_open, seen))
        one.ranks.append(rank)
        for number, call in enumerate(calls):
            one.slots.setdefault((number, tell_op(call.op), _tell_slot(call)), []).append(rank)
    suspects = set(case.verdict.suspects)
    return sorted(found.values(), key=lambda one: (suspects.isdisjoint(one.ranks), len(one.ranks), one.ranks))


def find_last_finished(timeline: Timeline, ranks: set[int]) -> dict[int, Position]:
    """The last call of ranks without an open one."""
    found: dict[int, Position] = {}

    def take(rank: int, track: Track, group: ProcessGroup, channel: tuple[int, int] | None) -> None:
        if rank not in found or found[rank].op.record_id < track.last.record_id:
            found[rank] = Position(track.last, group, channel)

    for group in timeline.groups if ranks else ():
        for rank in ranks.intersection(group.traces):
            if track := group.track(rank):
                take(rank, track, group.group, None)
    for channel in timeline.channels.of_ranks(ranks) if ranks else ():
        for rank in ranks.intersection((channel.source, channel.destination)):
            if track := channel.end(rank):
                take(rank, track, channel.group, (channel.source, channel.destination))
    return found


def _call_key(call: Position) -> tuple[object, ...]:
    """Without number and sizes, which are shown per rank: ranks at the same line of the program may be in different rounds."""
    dtypes = tuple((one.op, one.input_dtypes) for one in call.op.signatures)
    return (dtypes, call.op.state, call.op.stack, call.channel is not None)


def _tell_slot(call: Position) -> str:
    if call.channel:
        return f"{plain_name(str(call.group))} message {call.op.seq} of {call.channel[0]}->{call.channel[1]}"
    return f"{plain_name(str(call.group))} seq {call.op.seq}"


def _stack_key(live: LiveStack) -> tuple[object, ...]:
    return (_lines(live.stack), live.thread, *sorted({_lines(stack) for _, stack in live.others}))


def _lines(stack: Stack) -> tuple[tuple[str, int], ...]:
    inner = next((frame for frame in stack if is_python(frame)), None)
    frames = user_frames(stack)
    return tuple((f.filename, f.line) for f in ((inner, *frames) if inner is not None else frames))


# ---------------------------------------------------------------------------------------------------------------------
# In words.


def tell_where(case: Case) -> Iterator[str]:
    found = find_standings(case)
    for one in found[:_ENTRIES]:
        yield from _tell(case, one)
    rest = [rank for one in found[_ENTRIES:] for rank in one.ranks]
    if rest:
        yield f"{name_ranks(rest, _RANGES)}: {len(found) - _ENTRIES} more kinds of standing (table, threads)"


def _tell(case: Case, one: SeenTogether) -> Iterator[str]:
    who = name_ranks(one.ranks, _RANGES)
    shown: set[tuple[Frame, ...]] = set()
    if not one.calls and not one.live:
        yield f"{who}: no dump{'' if any(r in case.incident.heard for r in one.ranks) else ', no log'} and no stack"
        yield from _last_words(case, one.ranks)
    for number, call in enumerate(one.calls):
        frames = user_frames(call.op.stack)
        shown.add(frames)
        state = "waits in" if one.are_open else "nothing open; last finished"
        state = "dump ends early, after" if one.ranks[0] in case.incident.timeline.blind else state
        slots = _tell_slots(one, number)
        yield f"{who if not number else '   and'}: {state} {slots}{_chain(case, frames, call.op)}"
    for live in one.live:
        yield from _tell_stack(case, live, f"{who}: " if not one.calls else "   ", shown)


def _last_words(case: Case, ranks: Sequence[int]) -> Iterator[str]:
    lines = find_lines(case.incident)
    for rank in [rank for rank in ranks if lines.get(rank)][:_CALLS]:
        last = lines[rank][-1]
        yield f"   the last that rank {rank} printed ({plain_name(case.name_inside(last.file))}:{last.where.removeprefix('line ')}) |{shortened(case, last.says, _LONG)}"


def _tell_slots(one: SeenTogether, number: int) -> str:
    """The call and its number; what differs between ranks of one entry is shown for each, or for one example of many."""
    told = {(what, slot): ranks for (of, what, slot), ranks in one.slots.items() if of == number}
    whats, slots = list(dict.fromkeys(what for what, _ in told)), list(dict.fromkeys(slot for _, slot in told))
    if len(told) == 1:
        return f"{whats[0]}; {slots[0]}"
    if len(told) > _SLOTS:
        (what, slot), ranks = next(iter(told.items()))
        return f"{len(told)} calls, such as {what}; {slot} (rank {ranks[0]})"
    shared = whats[0] if len(whats) == 1 else slots[0] if len(slots) == 1 else ""
    each = [
        f"{name_ranks(ranks, _CALLS)} {slot if len(whats) == 1 else what if len(slots) == 1 else f'{what}; {slot}'}"
        for (what, slot), ranks in told.items()
    ]
    return f"{shared}{': ' if shared else ''}{', '.join(each)}"


def _chain(case: Case, frames: Sequence[Frame], op: Op | None = None) -> str:
    if not frames:
        if op is not None and op.stack is None:
            return "; dump without stacks"
        return "; called from C++, no Python frame recorded" if op is not None and not op.stack else ""
    return f"; from {tell_chain(case, frames)}"


def tell_chain(case: Case, frames: Sequence[Frame]) -> str:
    """`link.py:13 send < train.py:40 step`: innermost first, without the body of the script unless it is all there is."""
    told = up_to_script(tuple(frames))
    told = told[:-1] if len(told) > 1 and told[-1].name == "<module>" else told
    more = f" < {len(told) - _FRAMES} more" if len(told) > _FRAMES else ""
    return " < ".join(name_frame(case, frame) for frame in told[:_FRAMES]) + more


def _tell_stack(case: Case, live: LiveStack, who: str, shown: set[tuple[Frame, ...]]) -> Iterator[str]:
    where = f"({plain_name(case.name_inside(live.file))}:{live.line})"
    frames = user_frames(live.stack)
    inner = next((frame for frame in live.stack if is_python(frame)), None)
    called = f"{find_shape(live.stack)}{_in(inner, frames)}" if inner else "no Python frame"
    same = "; from the same place" if frames in shown and frames else _chain(case, frames)
    thread = f" waits for thread {plain_name(live.thread)}, which is" if live.thread else ""
    yield f"{who}stack {where}: main thread{thread} {called}{same}"
    alike: dict[str, list[str]] = {}
    for name, stack in live.others:
        inner, frames = next((frame for frame in stack if is_python(frame)), None), user_frames(stack)
        says = f"{find_shape(stack)}{_in(inner, frames)}{_chain(case, frames)}"
        alike.setdefault(says, []).append(plain_name(name) if name else "")
    for says, names in list(alike.items())[:_THREADS]:
        yield f"     another thread{''.join(f' {name}' for name in names[:2] if name)}: {says}"


def _in(inner: Frame | None, frames: Sequence[Frame]) -> str:
    """The innermost Python frame, unless it is the program's own, which follows."""
    return f", in {line_and_name(inner)}" if inner is not None and inner not in frames[:1] else ""


def name_frame(case: Case, frame: Frame) -> str:
    """`train.py:40 step`, relative to the source root if the source has the file."""
    module = case.analysis.program.module_at(frame.filename) if case.analysis is not None else None
    name = name_module(case, module) if module is not None else "/".join(frame.filename.split("/")[-2:])
    return f"{plain_name(name)}:{frame.line} {plain_name(frame.name)}"


# ---------------------------------------------------------------------------------------------------------------------
# The wait graph: who waits in which call, for whom, and the cycle if there is one.

_WAIT_RANGES = 4
_IN_RING = 16


def show_waits(case: Case) -> Sequence[Fact]:
    job = recorded_job(case.incident)
    if not job.slots:
        raise QuestionRefused("no dump shows a rank that waits; ask threads, progress or log_lines")
    return answer(chain(_of_ring(case), _of_slots(case, job.slots), _of_free(case)), "ask table for one group")


def _of_ring(case: Case) -> Iterator[Fact]:
    ring = find_cycle(find_waits(case.incident.timeline))
    if ring:
        shown = " -> ".join(map(str, ring[:_IN_RING])) + (" -> ..." if len(ring) > _IN_RING else f" -> {ring[0]}")
        yield fact(case, "wait graph", f"a cycle of {len(ring)} ranks, each waits for the next: {shown}")
    else:
        yield fact(case, "wait graph", "no cycle, as far as dumps show")


def _of_slots(case: Case, slots: Sequence[Slot]) -> Iterator[Fact]:
    """Calls with missing ranks first; similar calls in many groups share a line."""
    alike: dict[tuple[object, ...], list[Slot]] = {}
    for slot in slots:
        wants = (bool(slot.absent), bool(slot.busy), bool(slot.unknown), slot.misfit)
        alike.setdefault((str(slot.group), bool(slot.channel), slot.seq, wants), []).append(slot)
    ordered = sorted(alike.values(), key=lambda some: (not some[0].absent, not some[0].unknown, some[0].seq))
    for first, *more in ordered:
        ranks = frozenset[int]().union(first.waiting, *(slot.waiting for slot in more))
        place = (
            f"{plain_name(str(first.group))} message {first.seq} of {_way(first)}"
            if first.channel
            else _name(case, first)
        )
        likewise = f" and {len(more)} more like it" if more else ""
        yield fact(case, f"{place}{likewise}", f"{name_ranks(ranks, _WAIT_RANGES)} wait: {_tell_held(first, more)}")


def _name(case: Case, slot: Slot) -> str:
    return f"{name_group(slot.group, case.incident.timeline)} seq {slot.seq}"


def _way(slot: Slot) -> str:
    return f"{slot.channel[0]}->{slot.channel[1]}" if slot.channel else ""


def _tell_held(first: Slot, more: Sequence[Slot]) -> str:
    def everywhere(part: str) -> frozenset[int]:
        return frozenset[int]().union(*(getattr(slot, part) for slot in (first, *more)))

    told = [
        f"{name_ranks(ranks, _WAIT_RANGES)} {what}"
        for part, what in (
            ("absent", "did not call it"),
            ("busy", "called it, but still in an earlier call"),
            ("unknown", "unknown (no dump)"),
        )
        if (ranks := everywhere(part))
    ]
    told += ["the ranks' arguments do not match"] if first.misfit else []
    return "; ".join(told) or "all have called it, and it does not finish"


def _of_free(case: Case) -> Iterator[Fact]:
    job = recorded_job(case.incident)
    if job.free:
        yield fact(case, "wait graph", f"{name_ranks(job.free, _WAIT_RANGES)}: no pending call, but others wait for it")
    if job.elsewhere:
        yield fact(
            case,
            "wait graph",
            f"{name_ranks(job.elsewhere, _WAIT_RANGES)}: their stacks are in a call that no dump records",
        )
