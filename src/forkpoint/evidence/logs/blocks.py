"""Messages of several lines: tracebacks, stacks, torchelastic's failure table, torch errors with their reasons.

A block takes the lines of one speaker, so the lines of several ranks may be interleaved.
"""

import json
import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol, cast

from msgspec.structs import replace

from forkpoint.evidence.logs.patterns import match_line
from forkpoint.evidence.text import clean
from forkpoint.model.frames import is_user_code
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Frame

_FRAME = re.compile(
    r'\s{0,20}(?:\| {1,8})?File "(?P<path>[^"]{1,1000})", line (?P<at>\d{1,9})(?:,? in (?P<name>.{1,300}))?$'
)
_EXCEPTION = re.compile(
    r"(?P<name>[A-Za-z_]\w{0,80}(?:\.\w{1,80}){0,12}+)(?P<call>\([\w.]{1,80}\))?(?::\s?(?P<what>.*))?$"
)
_SUFFIXES = ("Error", "Exception", "Interrupt", "Exit", "Iteration", "Warning", "Group", ".error")
"""The last is that of old modules: `zlib.error`, `struct.error`, `socket.error`."""
_QUALIFIED = re.compile(r"\.[A-Z]\w{0,80}$")
"""`queue.Empty`: Python prints the module of every class that is not built in, so `loss: 2.1` is not an exception."""
_CHAINS = {
    "During handling of the above exception, another exception occurred:": "while another was handled",
    "The above exception was the direct cause of the following exception:": "caused by another",
}
_NOISE_AT_MOST = 20
_FRAMES_AT_MOST = 200
_LINES_AT_MOST = 2000
_COLLECTIVE_FRAME = re.compile(r"#\d{1,4} (?P<name>\S{1,300}+) from (?P<path>.{1,600}):(?P<at>\d{1,9})$")
_NCCL_REASON = re.compile(r"nccl[A-Z]\w{1,40}: ")


class LineBlock(Protocol):
    """Lines that belong together, while they are read."""

    done: bool

    def take(self, message: str) -> bool:
        """Takes a line; False if it does not belong to the block."""
        ...

    def events(self) -> Iterator[LogEvent]:
        """Its events, once the block is complete."""
        ...


class Tail:
    """The rest of a torch error: NCCL's reason and last warning, native frames."""

    def __init__(self) -> None:
        self.details: list[tuple[str, str]] = []
        self._last_error_next = False
        self._blank = 0

    def take(self, message: str) -> bool:
        text = message.strip()
        if not text:
            self._blank += 1
            return self._blank <= 3
        if self._last_error_next:
            self._last_error_next = False
            self.details.append(("last_error", clean(text)))
            return True
        if text == "Last error:":
            self._last_error_next = True
            return True
        if _NCCL_REASON.match(text):
            self.details.append(("reason", clean(text)))
            return True
        return text.startswith(("Exception raised from ", "frame #"))


class MessageBlock:
    """A message from torch that spans several lines."""

    def __init__(self, event: LogEvent) -> None:
        self._event = event
        self._tail = Tail()
        self.done = False

    def take(self, message: str) -> bool:
        taken = self._tail.take(message)
        self.done = not taken
        return taken

    def events(self) -> Iterator[LogEvent]:
        yield replace(self._event, details=(*self._event.details, *self._tail.details))


def is_traceback_frame(message: str) -> bool:
    """A frame of an exception's traceback. Other stacks have no comma before `in`, or are not indented by two."""
    return message.startswith('  File "') and ", in " in message and _FRAME.match(message) is not None


class TracebackBlock:
    """A Python traceback with its exception. `headless`: the log begins inside it; without an exception at its end, it is
    not taken for a traceback.
    """

    def __init__(self, event: LogEvent, chain: str | None = None, *, headless: bool = False) -> None:
        self._event = event
        self._headless = headless
        self._frames: deque[Frame] = deque(maxlen=_FRAMES_AT_MOST)
        self._noise = 0
        self._lines = 0
        self._ended: LogEvent | None = None
        self._tail = Tail()
        self._chain = chain
        self._code = ""
        """The source line of the innermost frame in user code."""
        self._is_user = False
        self.done = False
        self.then: str | None = None
        """The kind of block that its exception opens."""
        self.chains: str | None = None
        """How the next traceback is related to this one."""

    @property
    def ended(self) -> bool:
        """Its exception was read."""
        return self._ended is not None

    def take(self, message: str) -> bool:
        self._lines += 1
        if self._ended is not None:
            return self._take_after(message)
        frame = _FRAME.match(message)
        if frame:
            self._frames.append(Frame(clean(frame["name"] or "<module>"), clean(frame["path"]), int(frame["at"])))
            self._is_user = is_user_code(self._frames[-1])
        elif message[:1].isspace() or not message:
            if self._is_user and any(c.isalpha() for c in message):  # carets under a line are not code
                self._code, self._is_user = clean(message), False
        elif not self._end(message):
            self._noise += 1
            self.done = self._noise > _NOISE_AT_MOST
            return False
        self.done = self._lines > _LINES_AT_MOST
        return True

    def events(self) -> Iterator[LogEvent]:
        event = self._ended
        if event is None:
            if not self._frames or self._headless:
                return
            event = replace(self._event, text="a truncated traceback", stack=tuple(reversed(self._frames)))
        chain = (("chain", self._chain),) if self._chain else ()
        code = (("code", self._code),) if self._code else ()
        yield replace(event, details=(*event.details, *self._tail.details, *chain, *code))

    def _take_after(self, message: str) -> bool:
        chain = _CHAINS.get(message.strip())
        if chain:
            self.chains = chain
            return True
        taken = self._tail.take(message)
        self.done = not taken or self._lines > _LINES_AT_MOST
        return taken

    def _end(self, message: str) -> bool:
        exception = _EXCEPTION.match(message) if self._frames else None
        if exception is None:
            return False
        name = exception["name"]
        known = name.endswith(_SUFFIXES)
        if not known and (self._noise or not _QUALIFIED.search(name)):
            return False
        found = match_line(message)
        event = replace(self._event, text=clean(message), stack=tuple(reversed(self._frames)), exception=clean(name))
        if found and found[0].kind is not LogKind.STACK:
            pattern, match = found
            details = tuple((key, clean(value)) for key, value in match.groupdict().items() if value)
            event = replace(event, kind=pattern.kind, pattern=pattern.name, details=details)
            self.then = pattern.opens
            if pattern.of_host:
                event = replace(event, rank=None)
        self._ended = event
        return True


class StackBlock:
    """Frames, innermost first: of the collective that did not finish, or of a thread."""

    def __init__(self, event: LogEvent) -> None:
        self._event = event
        self._frames: list[Frame] = []
        self.done = False

    def take(self, message: str) -> bool:
        frame = _COLLECTIVE_FRAME.match(message) or _FRAME.match(message)
        if frame and len(self._frames) < _FRAMES_AT_MOST:
            self._frames.append(Frame(clean(frame["name"] or "?"), clean(frame["path"]), int(frame["at"])))
            return True
        self.done = True
        return not message.strip()

    def events(self) -> Iterator[LogEvent]:
        yield replace(self._event, stack=tuple(self._frames))


class PodBlock:
    """The state of a container: its exit code is on one of the next lines."""

    def __init__(self, event: LogEvent) -> None:
        self._event = event
        self._lines = 0
        self._code: str | None = None
        self.done = False

    def take(self, message: str) -> bool:
        self._lines += 1
        found = re.match(r"\s{0,20}(?:Exit Code|exitCode):\s{1,20}(\d{1,3})\b", message)
        if found:
            self._code = found[1]
        self.done = self._code is not None or self._lines >= 3
        return found is not None

    def events(self) -> Iterator[LogEvent]:
        code = (("code", self._code),) if self._code else ()
        yield replace(self._event, details=(*self._event.details, *code))


# -------------------------------------------------------------------------------------------------------- torchelastic

_ROW = re.compile(r"\s{1,8}(?P<key>time|host|rank|exitcode|error_file|traceback)\s{0,12}: ?(?P<value>.{0,2000})$")
_RANK = re.compile(r"(?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,5})\)")
_EXIT = re.compile(r"(?P<code>-?\d{1,5}) \(pid: (?P<pid>\d{1,9})\)")
_SIGNAL = re.compile(r"Signal \d{1,3} \((?P<name>SIG\w{1,10})\)")
_ENTRY = re.compile(r"\s{0,4}\[\d{1,7}\]:\s{0,4}$")
_RULER = re.compile(r"\s{0,4}[=-]{5,}+\s{0,4}$")
_ENTRIES_AT_MOST = 10_000
_ERROR_FILE_AT_MOST = 1 << 20


class AgentTable:
    """torchelastic's failure table. Its "root cause" is only the first failure that one node saw."""

    def __init__(self, event: LogEvent, *, root: bool) -> None:
        self._event = event
        self._root = root
        self._entries: list[tuple[bool, dict[str, str]]] = []
        self.done = False

    def take(self, message: str) -> bool:
        row = _ROW.match(message)
        if row:
            if not self._entries:
                self._open()
            self._entries[-1][1][row["key"]] = row["value"].strip()
            return True
        text = message.strip()
        if "Root Cause (first observed failure):" in text:
            self._root = True
        elif _ENTRY.match(message):
            self._open()
        elif _RULER.match(message):
            self.done = self._root and bool(self._entries) and text.startswith("=")
        elif message[:1].isspace() and self._entries and text:
            self._entries[-1][1]["last"] = text
        elif text and text not in {"Failures:", "<NO_OTHER_FAILURES>"} and not text.endswith("FAILED"):
            self.done = True
            return False
        self.done = self.done or len(self._entries) > _ENTRIES_AT_MOST
        return True

    def events(self) -> Iterator[LogEvent]:
        entries = [self._entry(root, rows) for root, rows in self._entries if rows]
        yield from entries or [self._event]

    def _open(self) -> None:
        self._entries.append((self._root, {}))

    def _entry(self, root: bool, rows: dict[str, str]) -> LogEvent:
        rank = _RANK.match(rows.get("rank", ""))
        ended = _EXIT.match(rows.get("exitcode", ""))
        what = rows.get("last") or rows.get("traceback", "")
        signal = _SIGNAL.search(what)
        details = {
            "root": "yes" if root else "no",
            "local_rank": rank["local"] if rank else "",
            "code": ended["code"] if ended else "",
            "pid": ended["pid"] if ended else "",
            "signal": signal["name"] if signal else "",
            "host": rows.get("host", ""),
            "error_file": rows.get("error_file", ""),
            "what": what,
        }
        return replace(
            self._event,
            rank=int(rank["rank"]) if rank else None,
            time=clean(rows["time"]) if "time" in rows else self._event.time,
            text=clean(", ".join(f"{key} {value}" for key, value in rows.items() if key != "last")),
            details=tuple((key, clean(value)) for key, value in details.items() if value),
        )


def read_error_file(text: str, event: LogEvent) -> LogEvent:
    """The exception in a torchelastic error file, which is one line of JSON. For any other text, the event is unchanged."""
    message, stack = _error_file_parts(text)
    if not message:
        return event
    block = TracebackBlock(event)
    for line in stack.splitlines()[1:]:
        block.take(line)
    inner = next(block.events(), event)
    return replace(inner, text=clean(message))


def _error_file_parts(text: str) -> tuple[str, str]:
    if len(text) > _ERROR_FILE_AT_MOST:
        return "", ""
    try:
        data: Any = json.loads(text[text.find("{") :])
    except (ValueError, RecursionError):
        return "", ""
    outer = _field(data, "message")
    message = outer if isinstance(outer, str) else _field(outer, "message")
    stack = _field(_field(outer, "extraInfo"), "py_callstack")
    return (message if isinstance(message, str) else ""), (stack if isinstance(stack, str) else "")


def _field(data: object, name: str) -> object:
    return cast("dict[object, object]", data).get(name) if isinstance(data, dict) else None
