"""A message that gloo refused: how gloo splits calls into messages, and which call the rank that refused was in."""

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum
from itertools import takewhile
from math import prod

import numpy as np
from msgspec import Struct

from forkpoint.diverge.cohorts import build_divergence, unrecorded_divergence
from forkpoint.diverge.habits import odd_ranks
from forkpoint.diverge.slots import sequence
from forkpoint.evidence.stacks.shapes import find_last_call
from forkpoint.judge.facts.blame import find_closings
from forkpoint.judge.facts.cite import LIKELY, STRONG, cite_event, cite_stack
from forkpoint.judge.facts.stacks import Standing, find_standings, is_waiting_for_ranks
from forkpoint.model.capture import LiveStack
from forkpoint.model.frames import bare_name, in_side_thread, place_of, user_frames, user_place
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind, Role, fact
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import SIZES_FREE, Signature, Stack, numel
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.verdict import Evidence

# ---------------------------------------------------------------------------------------------------------------------
# How gloo splits a collective into messages: their lengths show which call a message can belong to.
#
# From gloo's source (`allreduce.cc`, `allgather.cc`, `allgatherv.cc`, `broadcast.cc`). A call of another kind, or of a
# type whose size is not known here, has no lengths, and nothing is concluded from it.

_LARGEST_SEGMENT = 1 << 20
_ELEMENT_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4,
    "Long": 8, "Double": 8,
}  # fmt: skip
_LARGEST_ELEMENT = 16


def message_lengths(signature: Signature, members: int) -> frozenset[int]:
    """Bytes of each message that a member sends or waits for."""
    element = _ELEMENT_BYTES.get(signature.input_dtypes[0]) if len(signature.input_dtypes) == 1 else None
    if element is None or members < 2 or signature.lib != "gloo":
        return frozenset()
    sent = element * numel(signature.input_sizes)
    match signature.op:
        case "all_reduce":
            return _ring(sent, element, members)
        case "all_gather" | "_all_gather_base":
            return _gathered(signature, sent, element)
        case "broadcast":
            return frozenset({sent})
        case _:
            return frozenset()


def may_send(signature: Signature, length: int) -> bool:
    """Whether a message of this length may belong to the call, for any number of members in its group."""
    element = max((_ELEMENT_BYTES.get(t, _LARGEST_ELEMENT) for t in signature.input_dtypes), default=_LARGEST_ELEMENT)
    most = element * max(numel(signature.input_sizes), numel(signature.output_sizes))
    return signature.op in SIZES_FREE or length <= most


def _ring(total: int, element: int, members: int) -> frozenset[int]:
    """Two segments or more for each member, whole elements in each; the last one gets the rest."""
    largest = element * max(1, _LARGEST_SEGMENT // element)
    segments = _up(max(-(-total // largest), 2 * members), members)
    segment = _up(-(-total // segments), element)
    return frozenset({min(segment, total), total % segment if segment else 0}) - {0}


def _gathered(signature: Signature, sent: int, element: int) -> frozenset[int]:
    """In two halves; whole if members contribute different amounts."""
    given = {prod(size) * element for size in signature.output_sizes} if len(signature.output_sizes) > 1 else {sent}
    return frozenset(given if len(given) > 1 else {sent // 2, sent - sent // 2}) - {0}


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


# ---------------------------------------------------------------------------------------------------------------------
# A message that gloo refused: in one slot a rank waited for fewer bytes than a peer sent it there, and gloo ended it.
#
# gloo pairs messages by the kind of the call and the group's sequence number. So the rank that refused and the peer
# were in the same slot with the same kind of call, and their sizes do not match. The rank that refused leaves no dump,
# and may be the victim. It is the odd one only if all other ranks left dumps that agree up to the call that all of them
# are in, and the message fits that call: then the peer did the same as many others. Where the rank itself was is known
# from faulthandler, which prints all stacks when a process aborts.

BY_GLOO = "gloo-sizes-differ"
_COLLECTIVES = frozenset({
    *("all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor", "all_to_all"),
    *("all_to_all_single", "broadcast", "gather", "scatter", "reduce", "all_gather_object", "broadcast_object_list"),
})  # fmt: skip
_ALL_TO_ALL = frozenset({"all_to_all", "all_to_all_single"})
_MESSAGES = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
_LEAST_STANDINGS = 3
"""How many ranks must show where they were: two may be the only ones of many that were there."""
_C10D = "/torch/distributed/distributed_c10d.py"
_KINDS = {"all_reduce": "reduce", "all_gather": "gather", "_all_gather_base": "gather", "broadcast": "broadcast"}
"""Parts of the names of the functions that issue them."""
_AGREED = (PartingKind.ABSENCE, PartingKind.STUCK)

Lines = tuple[tuple[str, int], ...]


class Refused(StrEnum):
    """How the rank that refused differs from the others."""

    PATH = "path"
    """It is in a call that the others did not make there."""
    ARGUMENTS = "arguments"
    """It is in the same call, with a size that this call never had."""
    SPLITS = "splits"
    """It is in the same all_to_all, whose sizes differ by pair: either end may be wrong."""
    THREADS = "threads"
    """Two threads use the group, and it is in the other thread's call."""
    UNKNOWN = "unknown"
    """Nothing but the other size is known."""


class Refusal(Struct, frozen=True):
    event: LogEvent
    stack: LiveStack
    how: Refused
    confidence: float
    divergence: Divergence

    @property
    def told(self) -> str:
        sizes = f"a message of {self.event.detail('sent')} bytes where it expected {self.event.detail('expected')}"
        return f"rank {self.stack.rank} got {sizes}, and gloo ended it"

    @property
    def told_places(self) -> str:
        """Where both sides were."""
        usual = next((c for c in self.divergence.cohorts if c.sizes), None)
        own = f"rank {self.stack.rank} was at {user_place(self.stack.stack)}"
        if usual is None:
            return own
        place = user_place(usual.stack)
        called = f"{usual.op} {[list(s) for s in usual.sizes[:3]]}{f' from {place}' if place else ''}"
        return f"{own}, the others in {called}"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (cite_event(self.event), cite_stack(self.stack))


class _Call(Struct, frozen=True):
    """A call that the others made in the group."""

    signature: Signature
    stack: Stack | None
    lengths: frozenset[int]
    """Lengths of the messages that gloo splits it into."""

    @property
    def lines(self) -> Lines:
        return _lines(self.stack)

    @property
    def from_thread(self) -> bool:
        return in_side_thread(self.stack or ())


class _Reading(Struct, frozen=True):
    how: Refused
    confidence: float


@fact
def refused_sizes(incident: Incident) -> tuple[LogEvent, ...]:
    """Lines of libraries that received data of another size than expected: the code is to blame, not a machine."""
    return tuple(e for e in incident.capture.events if e.kind is LogKind.SIZES_DIFFER)


@fact
def refused_in_all_to_all(incident: Incident) -> bool:
    """The ranks that refused a size were in an all_to_all, in which each pair must agree on its size. If gloo ended
    them without a stack: all that lost their connections were in one at that time.
    """
    refused = {e.rank for e in refused_sizes(incident)}
    stacks = [s.stack for s in incident.capture.stacks if s.rank in refused]
    stacks = stacks or [e.stack for e in find_closings(incident) if e.stack]
    return bool(refused) and bool(stacks) and all(_names(stack) & _ALL_TO_ALL for stack in stacks)


@fact
def find_refusal(incident: Incident) -> Refusal | None:
    """None also if more than one rank refused, if another dump is missing, or if the others do not agree."""
    found = _refused_and_stood(incident)
    if found is None or not _others_agree(found[1].rank, incident) or _names(found[1].stack) & _MESSAGES:
        return None  # send and recv are not recorded
    event, stack = found
    calls = {g.group: _calls(g, incident) for g in incident.timeline.groups}
    own = [g for g in incident.timeline.groups if stack.rank in g.group.ranks]
    if any(name.startswith("all_to_all") for name in _names(stack.stack)):
        own = [g for g in own if any(_is_same_free(c, stack) for c in calls[g.group])]
        return _in_all_to_all(event, stack, own[0], incident) if len(own) == 1 else None
    sent = _bytes(event, "sent")
    own = [g for g in own if any(sent in c.lengths for c in calls[g.group])]
    elsewhere = (c for group, held in calls.items() if group not in {g.group for g in own} for c in held)
    if len(own) != 1 or any(may_send(c.signature, sent) for c in elsewhere):
        return None  # the group of the message is not known
    return _in_collective(event, stack, own[0], calls[own[0].group], incident)


class RefusedAtPlace(Struct, frozen=True):
    """A size that a library refused, while all ranks whose place is known are at one call."""

    event: LogEvent
    standings: tuple[Standing, ...]

    @property
    def told(self) -> str:
        return f"rank {self.event.rank} got {self.event.detail('sent')} bytes where it expected {self.event.detail('expected')}"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (cite_event(self.event), *(one.evidence for one in self.standings[:4]))

    @property
    def divergence(self) -> Divergence:
        ranks = tuple(one.rank for one in self.standings)
        op = next(bare_name(f) for f in find_last_call(self.standings[0].stack) if place_of(f).endswith(_C10D))
        cohort = Cohort(ranks, Role.WAITING, op, stack=self.standings[0].stack)
        return unrecorded_divergence(PartingKind.METADATA, (cohort,))


def find_refusal_at_one_place(incident: Incident) -> RefusedAtPlace | None:
    """For ranks without dumps. The place of most ranks must be known; a launcher may stop the others before they print
    it.
    """
    refused = [e for e in refused_sizes(incident) if e.rank is not None and e.detail("sent")]
    standings = find_standings(incident)
    if not refused:
        return None
    places = {one.place for one in standings.values()}
    most = len(standings) >= _LEAST_STANDINGS and 2 * len(standings) > len(incident.timeline.world)
    by_source = _came_with_own_size(refused, standings, incident)
    calls = all(_names(one.stack) & _COLLECTIVES for one in standings.values())
    if len(places) != 1 or () in places or not (most or by_source) or not calls:
        return None
    # gloo only pairs calls of the same kind, and of these only an all_to_all has separate sizes for every pair.
    known = refused[0].rank in standings or all(_names(one.stack) & _ALL_TO_ALL for one in standings.values())
    if not (known or by_source):
        return None
    return RefusedAtPlace(refused[0], tuple(standings[rank] for rank in sorted(standings)))


def _came_with_own_size(refused: list[LogEvent], standings: dict[int, Standing], incident: Incident) -> bool:
    """According to the source, sizes depend on each rank's own data where all others were, and that is the next call of
    those that refused.
    """
    source = incident.capture.source
    places = {one.place for one in standings.values()}
    coming = {way.rank for way in source.on_the_way if way.place in places}
    everyone = standings.keys() | {e.rank for e in refused} >= set(incident.timeline.world)
    return bool(places) and places <= source.own_sizes and everyone and all(e.rank in coming for e in refused)


def _refused_and_stood(incident: Incident) -> tuple[LogEvent, LiveStack] | None:
    """The only rank that refused, and where it was when it aborted: its stacks come after the line that says so."""
    events = [e for e in incident.capture.events if e.kind is LogKind.SIZES_DIFFER and e.pattern == BY_GLOO]
    if len({e.rank for e in events}) != 1 or not events[0].detail("sent"):
        return None
    event = events[0]
    own = [s for s in incident.capture.stacks if (s.rank, s.file) == (event.rank, event.file)]
    stack = next((s for s in own if s.line > event.line), None)
    return (event, stack) if stack else None


def _others_agree(rank: int, incident: Incident) -> bool:
    timeline = incident.timeline
    whole = set(timeline.world) - {rank} == set(timeline.traces)
    return whole and timeline.world_known and all(d.how in _AGREED for d in incident.divergences)


def _in_all_to_all(event: LogEvent, stack: LiveStack, group: GroupTimeline, incident: Incident) -> Refusal | None:
    seq = next((seq for seq, call in _held(group, incident) if _is_same_free(call, stack)), None)
    return None if seq is None else _refusal(event, stack, _Reading(Refused.SPLITS, LIKELY), group, seq, incident)


def _in_collective(
    event: LogEvent, stack: LiveStack, group: GroupTimeline, calls: tuple[_Call, ...], incident: Incident
) -> Refusal | None:
    tracks = [t for r in group.traces if (t := group.track(r))]
    if group.blind_after or len({t.last_seq for t in tracks}) != 1:
        return None  # the others are not in one slot, or a dump ends before it
    if any(c.stack is None for c in calls):
        return None  # calls of the two threads cannot be told apart, and have no order
    sent, expected = _bytes(event, "sent"), _bytes(event, "expected")
    held = list(_held(group, incident))
    if len({c.from_thread for c in calls}) > 1:
        reading = _read_threads(sent, expected, calls)
    else:
        reading = _read_places(stack.stack, sent, expected, calls)
        held = list(takewhile(lambda slot: slot[1].lines == held[0][1].lines, held))  # the call that they are in
    seq = next((seq for seq, call in held if sent in call.lengths), None)
    if reading is None or seq is None or _has_free(seq, group, incident):
        return None
    return _refusal(event, stack, reading, group, seq, incident)


def _read_threads(sent: int, expected: int, calls: tuple[_Call, ...]) -> _Reading | None:
    """Nothing orders the calls of two threads, on any rank: nobody is odd."""
    here = {c.from_thread for c in calls if sent in c.lengths}
    there = {c.from_thread for c in calls if expected in c.lengths}
    swapped = len(here) == len(there) == 1 and here != there
    return _Reading(Refused.THREADS, LIKELY) if swapped else None


def _read_places(stack: Stack, sent: int, expected: int, calls: tuple[_Call, ...]) -> _Reading | None:
    if not is_waiting_for_ranks(stack) or not _lines(stack):
        return None  # in no blocking call: the message may belong to a recv that was started before
    fitting = [c for c in calls if sent in c.lengths]
    if any(not c.lines for c in fitting) or not _is_of_kind(stack, fitting):
        return _Reading(Refused.UNKNOWN, 0)
    same_place = [c for c in calls if c.lines == _lines(stack)]
    usual_size = any(expected in c.lengths for c in same_place)
    if any(sent in c.lengths for c in same_place):  # if this place has had that size, the rank may be off by some calls
        return _Reading(Refused.UNKNOWN, 0) if usual_size else _Reading(Refused.ARGUMENTS, STRONG)
    if same_place:
        return _Reading(Refused.PATH, STRONG) if usual_size else _Reading(Refused.UNKNOWN, 0)
    return _Reading(Refused.PATH, LIKELY)


def _refusal(
    event: LogEvent, stack: LiveStack, reading: _Reading, group: GroupTimeline, seq: int, incident: Incident
) -> Refusal:
    rank, timeline = stack.rank, incident.timeline
    others = tuple(r for r in group.group.ranks if r != rank)
    threads = reading.how is Refused.THREADS
    sides = (others, (rank,))
    odd = () if threads or reading.how is Refused.SPLITS else odd_ranks(sides, timeline.unseen)
    found = build_divergence(PartingKind.METADATA, group, seq, timeline, sides=sides, hang=seq, odd=odd)
    op = next((c.op for c in found.cohorts if c.op), None)
    # If there are two threads, it is not known which of them was in the slot.
    own = Cohort((rank,), Role.WAITING, op, stack=None if threads else stack.stack)
    cohorts = tuple(own if c.ranks == (rank,) else c for c in found.cohorts)
    return Refusal(event, stack, reading.how, reading.confidence, replace(found, cohorts=cohorts))


def _calls(group: GroupTimeline, incident: Incident) -> tuple[_Call, ...]:
    """All calls that the dumps still hold. Ranks that did the same share blocks: each is searched once."""
    blocks = incident.timeline.tables.blocks
    keys = {key for r in group.traces if (t := group.track(r)) for key in t.blocks}
    pairs = {p for k in keys for p in zip(blocks[k].match.tolist(), blocks[k].stack.tolist(), strict=True)}
    return tuple(_call(match, stack, group, incident) for match, stack in sorted(pairs))


def _held(group: GroupTimeline, incident: Incident) -> Iterator[tuple[int, _Call]]:
    """The slots that all others have issued, newest first, as one of them holds them."""
    tracks = [t for r in group.traces if (t := group.track(r))]
    held = sequence(min(tracks, key=lambda t: t.last_seq), incident.timeline.tables)
    for at in np.flatnonzero(held.match)[::-1].tolist():
        yield held.first + at, _call(int(held.match[at]), int(held.stack[at]), group, incident)


def _call(match: int, stack: int, group: GroupTimeline, incident: Incident) -> _Call:
    tables = incident.timeline.tables
    signature = tables.signatures[match][0]
    return _Call(signature, tables.stacks.get(stack), message_lengths(signature, len(group.group.ranks)))


def _has_free(seq: int, group: GroupTimeline, incident: Incident) -> bool:
    """Whether an operation's sizes differ by pair. gloo runs two calls of a group at once, so the call before counts
    too.
    """
    slots = takewhile(lambda slot: slot[0] >= seq - 1, _held(group, incident))
    return any(call.signature.op in SIZES_FREE for _, call in slots)


def _is_same_free(call: _Call, stack: LiveStack) -> bool:
    return call.signature.op in SIZES_FREE and bool(call.lines) and call.lines == _lines(stack.stack)


def _is_of_kind(stack: Stack, calls: list[_Call]) -> bool:
    """The call that it is in, if its name is seen, is of the same kind as these: gloo pairs no others."""
    inside = (bare_name(f) for f in find_last_call(stack) if place_of(f).endswith(_C10D))
    name = next((name for name in inside if name != "wrapper"), None)
    return name is None or any(_KINDS[c.signature.op] in name for c in calls)


def _names(stack: Stack) -> set[str]:
    return {bare_name(frame) for frame in find_last_call(stack)}


def _lines(stack: Stack | None) -> Lines:
    return tuple((f.filename, f.line) for f in user_frames(stack))


def _bytes(event: LogEvent, name: str) -> int:
    return int(event.detail(name) or 0)
