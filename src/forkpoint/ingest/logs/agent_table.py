"""torchelastic's failure table and error files. What they call the root cause is what one node saw first."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

from forkpoint.ingest.logs.blocks import TracebackBlock
from forkpoint.ingest.text import clean
from forkpoint.model.log import LogEvent

_ROW = re.compile(r"\s{1,8}(?P<key>time|host|rank|exitcode|error_file|traceback)\s{0,12}: ?(?P<value>.{0,2000})$")
_RANK = re.compile(r"(?P<rank>\d{1,7}) \(local_rank: (?P<local>\d{1,5})\)")
_EXIT = re.compile(r"(?P<code>-?\d{1,5}) \(pid: (?P<pid>\d{1,9})\)")
_SIGNAL = re.compile(r"Signal \d{1,3} \((?P<name>SIG\w{1,10})\)")
_ENTRY = re.compile(r"\s{0,4}\[\d{1,7}\]:\s{0,4}$")
_RULER = re.compile(r"\s{0,4}[=-]{5,}+\s{0,4}$")
_ENTRIES_AT_MOST = 10_000
_ERROR_FILE_AT_MOST = 1 << 20


class AgentTable:
    """The table, row by row."""

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
        told = [self._entry(root, rows) for root, rows in self._entries if rows]
        yield from told or [self._event]

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
    """The exception in an error file, which is one line of JSON. Any other text is kept as it is."""
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
