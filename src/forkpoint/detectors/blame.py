"""What logs say of failures, and which lines only follow from a peer's failure: those accuse nobody."""

import re

from forkpoint.detectors.cite import events_of
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import LogEvent, LogKind

# Exceptions that a rank gets because a peer went away, did not come or differs: it is a victim, or one of many.
_VICTIM = re.compile(
    r"DistBackendError|DistNetworkError|DistStoreError|nccl(?!UnhandledCuda)\w*Error|NCCL error|communicator was aborted"
    r"|Connection (?:closed|reset|refused)"
    r"|across all ranks|between collectives|inconsistent"
    r"|[Tt]imed out|[Tt]imeout|Broken pipe|gloo|Watchdog|[Ss]ocket|KeyboardInterrupt|SystemExit|SignalException"
)
CLOSED = re.compile(r"Connection (?:closed|reset)|remote process exited|ncclRemoteError|[Pp]eer.{0,80} closed")
SAID_OF_PEERS = (LogKind.EXCEPTION, LogKind.NETWORK, LogKind.PEER_TIMEOUT, LogKind.ASYNC_ERROR, LogKind.REMOTE_ERROR)
_OF_CUDA = re.compile(r"CUDA(?: driver)? error: (?!out of memory)|Cuda failure (?!2 )")
_BECAUSE_OF_PEERS = frozenset({
    *(LogKind.WATCHDOG_TIMEOUT, LogKind.WATCHDOG_DIED, LogKind.ASYNC_ERROR, LogKind.REMOTE_ERROR, LogKind.PEER_TIMEOUT),
    *(LogKind.DESYNC, LogKind.TEARDOWN, LogKind.DUMPED, LogKind.DUMP_SIGNAL, LogKind.CALLS_DIFFER),
    *(LogKind.BARRIER_MISSED,),
})  # fmt: skip
_IF_RAISED = frozenset({LogKind.NETWORK, LogKind.STORE, LogKind.RENDEZVOUS})
"""Also printed where a second try then succeeds: they count where an exception says that none did."""


def cut_off(incident: Incident) -> set[int]:
    """Ranks whose own words say that a peer closed its connection."""
    return {e.rank for e in find_closings(incident) if e.rank is not None}


@fact
def find_closings(incident: Incident) -> tuple[LogEvent, ...]:
    return tuple(e for e in incident.capture.events if e.kind in SAID_OF_PEERS and CLOSED.search(whole_text(e)))


def is_connecting(incident: Incident) -> bool:
    """A rank began to make its communicator and did not finish. (Empty dumps alone may mean that the recorder was off.)"""
    told = [
        e for e in incident.capture.events if e.kind is LogKind.NCCL_INIT and e.file not in incident.capture.cut_logs
    ]
    phases = {(e.rank, e.detail("phase")) for e in told}
    began, ended = ({rank for rank, phase in phases if phase == wanted} for wanted in ("Init START", "Init COMPLETE"))
    return bool(began - ended)


def cuda_errors(rank: int, incident: Incident) -> list[LogEvent]:
    """Calls to its GPU that failed, memory that was merely used up aside."""
    return [e for e in events_of(rank, incident, LogKind.CUDA_ERROR, LogKind.EXCEPTION) if _OF_CUDA.search(e.text)]


def is_victim_text(text: str) -> bool:
    return bool(_VICTIM.search(text))


def whole_text(event: LogEvent) -> str:
    return " ".join((event.text, event.detail("reason") or "", event.detail("last_error") or ""))


def blames_peers(event: LogEvent) -> bool:
    """What the line tells follows from a peer: it went away, did not come, or brought something else."""
    if event.kind in _BECAUSE_OF_PEERS:
        return not (event.kind is LogKind.ASYNC_ERROR and "ncclUnhandledCudaError" in whole_text(event))
    if event.kind in _IF_RAISED:
        return event.exception is not None
    if event.kind is LogKind.EXCEPTION and event.exception is None:
        return False  # a traceback that is cut tells nothing
    return (event.exception is not None or event.kind is LogKind.CRASHED) and is_victim_text(event.text)
