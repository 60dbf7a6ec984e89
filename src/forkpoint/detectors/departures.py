"""How a rank that left no dump came to leave: what its own log says last."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from forkpoint.detectors.cite import events_of, has_log, live_stack
from forkpoint.detectors.machine_words import GpuFault, find_gpu_faults, find_memory_kills
from forkpoint.detectors.stalls import is_communicating
from forkpoint.model.capture import Remark
from forkpoint.model.divergence import Divergence
from forkpoint.model.frames import in_side_thread, user_frames
from forkpoint.model.incident import Incident
from forkpoint.model.log import FAILURES, LogEvent, LogKind
from forkpoint.model.op import Frame, Stack

_UNJOINED = "terminate called without an active exception"
# Exceptions that a rank gets because a peer went away, did not come or differs: it is a victim, or one of many.
_VICTIM = re.compile(
    r"DistBackendError|DistNetworkError|DistStoreError|nccl\w*Error|NCCL error|communicator was aborted"
    r"|Connection (?:closed|reset|refused)"
    r"|across all ranks|between collectives|inconsistent"
    r"|[Tt]imed out|[Tt]imeout|Broken pipe|gloo|Watchdog|[Ss]ocket|KeyboardInterrupt|SystemExit|SignalException"
)


_CLOSED = re.compile(r"Connection (?:closed|reset)")
_SAID = (LogKind.EXCEPTION, LogKind.NETWORK, LogKind.PEER_TIMEOUT)
_TIMED_OUT = re.compile(r"[Tt]imed out|[Tt]imeout")


_OF_CUDA = re.compile(r"CUDA(?: driver)? error: (?!out of memory)|Cuda failure (?!2 )")


class Departure(StrEnum):
    RAISED = "raised"
    """Its own code raised: it left the others' path by itself."""
    KILLED = "killed"
    """A signal, or no memory left."""
    LEFT = "left"
    """Its program ended in order while the others went on."""
    WENT_SILENT = "went silent"
    """Its log says nothing of the failure that the others report."""
    GPU_FAILED = "gpu failed"
    """The kernel tells of a fault of its GPU, and it left no dump."""


@dataclass(frozen=True, slots=True)
class Departed:
    rank: int
    how: Departure
    event: LogEvent | None
    """Its own words."""
    fault: GpuFault | None = None
    kill: Remark | None = None
    """The kernel's word that it was killed for memory."""
    silent: bool = False
    """It would have spoken if it had lived."""
    asked: str | None = None
    """The empty file in which it would have answered."""


def find_departed(incident: Incident) -> tuple[Departed, ...]:
    """Ranks whose own words say how they left. Ranks that dumped or report the timeout themselves stayed."""
    tells = _silence_tells(incident)
    faults, kills = find_gpu_faults(incident), find_memory_kills(incident)
    heard = [rank for rank in incident.timeline.world if has_log(rank, incident)]
    found = [
        _by_gpu(rank, incident, faults[rank], silence_tells=tells)
        if rank in faults
        else _departed(rank, incident, kills.get(rank), silence_tells=tells)
        for rank in heard
    ]
    return tuple(d for d in found if d)


def missing_from(divergence: Divergence | None, incident: Incident) -> tuple[int, ...]:
    """Ranks that could explain the slot by being gone: unknown there, or without any dump."""
    unknown = divergence.unknown if divergence else incident.timeline.world
    return tuple(r for r in unknown if r not in incident.timeline.traces)


def cut_off(incident: Incident) -> set[int]:
    """Ranks whose own words say that a peer closed its connection."""
    return {e.rank for e in find_closings(incident) if e.rank is not None}


def find_closings(incident: Incident) -> tuple[LogEvent, ...]:
    return tuple(e for e in incident.capture.events if e.kind in _SAID and _CLOSED.search(e.text))


def is_connecting(incident: Incident) -> bool:
    """A rank began to make its communicator and did not finish. (Empty dumps alone may mean that the recorder was off.)"""
    phases = {(e.rank, e.detail("phase")) for e in incident.capture.events if e.kind is LogKind.NCCL_INIT}
    began, ended = ({rank for rank, phase in phases if phase == wanted} for wanted in ("Init START", "Init COMPLETE"))
    return bool(began - ended)


def cuda_errors(rank: int, incident: Incident) -> list[LogEvent]:
    """Calls to its GPU that failed, memory that was merely used up aside."""
    return [e for e in events_of(rank, incident, LogKind.CUDA_ERROR, LogKind.EXCEPTION) if _OF_CUDA.search(e.text)]


def is_victim_text(text: str) -> bool:
    return bool(_VICTIM.search(text))


def _by_gpu(rank: int, incident: Incident, fault: GpuFault, *, silence_tells: bool) -> Departed | None:
    """A fault of its GPU explains an end that the rank itself shows. What it raised in its own code stays its own, and so
    does a kill from outside.
    """
    own = _departed(rank, incident, None, silence_tells=silence_tells)
    failed = cuda_errors(rank, incident)
    if failed:
        return Departed(rank, Departure.GPU_FAILED, failed[0], fault)
    crashed = own is not None and own.event is not None and own.event.kind is LogKind.CRASHED
    if own is not None and (crashed or own.how is Departure.WENT_SILENT):
        return replace(own, how=Departure.GPU_FAILED, fault=fault)
    if own is None and fault.timely and not _is_alive(rank, incident):
        return Departed(rank, Departure.GPU_FAILED, None, fault)
    return own


def _departed(rank: int, incident: Incident, kill: Remark | None, *, silence_tells: bool) -> Departed | None:
    # Whose library refused what a peer sent was ended by it: one of two that differ, and which is not known.
    refused = events_of(rank, incident, LogKind.SIZES_DIFFER)
    ends = events_of(rank, incident, LogKind.KILLED, LogKind.CRASHED, LogKind.OUT_OF_MEMORY)
    raised = [
        e
        for e in events_of(rank, incident, LogKind.EXCEPTION)
        if not (is_victim_text(e.text) or in_side_thread(e.stack) or _follows_from_a_peer(e, incident))
    ]
    killed = [] if refused else [e for e in ends if not (_follows_from_a_peer(e, incident) or _follows(e, raised))]
    if killed:
        return Departed(rank, Departure.KILLED, killed[0], kill=kill)
    if raised:
        return Departed(rank, Departure.RAISED, raised[0])
    if refused or _is_alive(rank, incident):
        return None
    left = events_of(rank, incident, LogKind.LEFT)
    if left:
        return Departed(rank, Departure.LEFT, left[0])
    if kill is not None:
        return Departed(rank, Departure.KILLED, None, kill=kill)
    asked = None if silence_tells else _unanswered(rank, incident)
    gone = silence_tells or asked is not None
    return Departed(rank, Departure.WENT_SILENT, None, silent=True, asked=asked) if gone else None


def _follows(event: LogEvent, raised: list[LogEvent]) -> bool:
    """The rank raised in its own code, and its C++ threads, which nobody had joined, then ended the process. Any other crash
    is its own end: an exception before it may have been caught.
    """
    after_its_own = any(e.file == event.file and e.line < event.line for e in raised)
    return event.kind is LogKind.CRASHED and _UNJOINED in event.text and after_its_own


def _follows_from_a_peer(event: LogEvent, incident: Incident) -> bool:
    """The rank raised because of a peer, and then crashed on its way out (threads of its own still ran); or what it raised
    is not told, where two threads wrote at once.
    """
    said = incident.said.get(event.rank, ()) if event.rank is not None else ()
    lines = [e.line for e in said if e.file == event.file and e.exception and is_victim_text(e.text)]
    crashed = event.kind is LogKind.CRASHED and any(line < event.line for line in lines)
    untold = event.kind is LogKind.EXCEPTION and event.exception is None and bool(lines)
    return crashed or untold


def _unanswered(rank: int, incident: Incident) -> str | None:
    """Where it did not answer the request for its stack, while all who wait in the slot did, from inside that wait.

    The handler runs in C and needs no GIL: a process that is stuck in anything of its own answers. One that ended in order
    does not either, but not while the others wait in a call of which its part is unknown.
    """
    divergence = incident.divergence
    file = next((file for file, r in incident.capture.unanswered if r == rank), None)
    if divergence is None or file is None:
        return None
    answers = {answer.rank: answer.stack for answer in incident.capture.stacks}
    asked_then = all(_stood_waiting(r, answers.get(r, ()), incident) for r in divergence.sides[0])
    return file if asked_then else None


def _stood_waiting(rank: int, answer: Stack, incident: Incident) -> bool:
    """Its stack is of the time of its wait: in a communication call, or still in the function from which it was made (a
    call to a GPU returns before it is done).
    """
    stands = incident.timeline.positions.get(rank, ())
    if not answer or not stands:
        return False
    now, then = (reversed(user_frames(stack)) for stack in (answer, stands[0].op.stack))
    parted = next(((one, other) for one, other in zip(now, then, strict=False) if one != other), None)
    return is_communicating(answer) or (parted is not None and _same_function(*parted))


def _same_function(one: Frame, other: Frame) -> bool:
    """The body of a module is none: all of a program runs in it."""
    return (one.filename, one.name) == (other.filename, other.name) and one.name != "<module>"


def _is_alive(rank: int, incident: Incident) -> bool:
    """It wrote a dump or a stack, or speaks of the failure."""
    spoke = events_of(rank, incident, LogKind.DUMPED, *FAILURES)
    return bool(spoke) or rank in incident.timeline.traces or live_stack(rank, incident) is not None


def _silence_tells(incident: Incident) -> bool:
    """A living rank would have spoken: NCCL's monitor makes every rank dump and say so, even one that is stuck. Without
    it (gloo) only connections that closed, and nobody's timeout, show that a process is gone.
    """
    kinds = {e.kind for e in incident.capture.events}
    if LogKind.DUMPED in kinds and kinds & {LogKind.WATCHDOG_TIMEOUT, LogKind.ASYNC_ERROR}:
        return True
    said = [e.text for e in incident.capture.events if e.kind in _SAID]
    return any(_CLOSED.search(text) for text in said) and not any(_TIMED_OUT.search(text) for text in said)
