"""What a training log says about the failure: watchdog lines, exceptions, deaths, network and start-up errors.

Literals are looked for first; a regular expression only sees lines that contain one.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from forkpoint.ingest.text import clean
from forkpoint.model.capture import LogEvent, LogKind
from forkpoint.model.op import Frame

_PREFIX = re.compile(r"^\s*\[rank(\d{1,7})\]:\s?")
_SEQ = re.compile(r"SeqNum=(\d{1,18})")
_FRAME = re.compile(r'^\s+File "([^"]{1,1000})", line (\d{1,9}), in (.{1,300})$')
_EXCEPTION = re.compile(
    r"^([A-Za-z_][\w.]{0,200}(?:Error|Exception|Interrupt|Exit|Sample|Iteration|Warning)?)(?::\s?(.*))?$"
)
_TRACEBACK = "Traceback (most recent call last):"

# (literal that the line contains, kind). The first that fits counts.
_LITERALS: tuple[tuple[str, LogKind], ...] = (
    ("Watchdog caught collective operation timeout", LogKind.WATCHDOG_TIMEOUT),
    ("failure detected by watchdog at work sequence id", LogKind.GROUP_STATUS),
    ("raised the following async exception", LogKind.ASYNC_ERROR),
    ("preparing to dump debug info", LogKind.DUMPED),
    ("ProcessGroupNCCL destructor entered", LogKind.LEFT),
    ("destroy_process_group() was not called before program exit", LogKind.LEFT),
    ("Operations flushed, joining watchdog thread", LogKind.LEFT),
    (" - Init START", LogKind.CONNECTING),
    (" - Init COMPLETE", LogKind.CONNECTED),
    ("Could not acquire GIL within", LogKind.GIL_HELD),
    ("Future for Flight recorder dump in heartbeatMonitor timed out", LogKind.GIL_HELD),
    ("clients joined", LogKind.RENDEZVOUS),
    ("RendezvousTimeoutError", LogKind.RENDEZVOUS),
    ("Connection closed by remote peer", LogKind.NETWORK),
    ("Got completion from peer", LogKind.NETWORK),
    ("Got async event", LogKind.NETWORK),
    ("message truncated", LogKind.NETWORK),
    ("CUDA out of memory", LogKind.OUT_OF_MEMORY),
    ("oom-kill", LogKind.OUT_OF_MEMORY),
    ("Signal 9 (SIGKILL)", LogKind.KILLED),
    ("Signal 11 (SIGSEGV)", LogKind.KILLED),
    ("Fatal Python error: Segmentation fault", LogKind.KILLED),
)
_ANY_LITERAL = re.compile("|".join(re.escape(text) for text, _ in _LITERALS))


@dataclass(slots=True)
class _Traceback:
    """One being read: the lines of several ranks may be interleaved, so there is one per prefix."""

    line: int
    frames: list[Frame] = field(default_factory=list)


def read_log(lines: Iterable[str], file: str, rank: int | None) -> Iterator[LogEvent]:
    """The events of one log, in its order. `rank` is the file's; a line's own `[rankN]:` goes before it."""
    open_tracebacks: dict[int | None, _Traceback] = {}
    for number, raw in enumerate(lines, 1):
        line = raw.rstrip("\r\n")
        prefix = _PREFIX.match(line[:40])
        speaker = int(prefix[1]) if prefix else rank
        body = line[prefix.end() :] if prefix else line
        if body.startswith(_TRACEBACK):
            open_tracebacks[speaker] = _Traceback(number)
        elif speaker in open_tracebacks:
            event = _continue_traceback(open_tracebacks[speaker], body, file, speaker)
            if event is not None:
                del open_tracebacks[speaker]
                yield event
        if _ANY_LITERAL.search(body):
            yield _literal_event(body, file, number, speaker)


def _continue_traceback(traceback: _Traceback, body: str, file: str, rank: int | None) -> LogEvent | None:
    frame = _FRAME.match(body)
    if frame:
        traceback.frames.append(Frame(clean(frame[3]), clean(frame[1]), int(frame[2])))
        return None
    exception = None if body[:1].isspace() or not traceback.frames else _EXCEPTION.match(body)
    if exception is None:
        return None
    return LogEvent(
        kind=LogKind.OUT_OF_MEMORY if "OutOfMemoryError" in exception[1] else LogKind.EXCEPTION,
        file=file,
        line=traceback.line,
        rank=rank,
        text=clean(body),
        stack=tuple(reversed(traceback.frames)),
    )


def _literal_event(body: str, file: str, number: int, rank: int | None) -> LogEvent:
    kind = next(kind for literal, kind in _LITERALS if literal in body)
    seq = _SEQ.search(body)
    return LogEvent(kind, file, number, rank, clean(body), seq=int(seq[1]) if seq else None)
