"""Stacks as py-spy prints them: text, or JSON.

    Process 7085: python train.py
    Python v3.11.2 (/usr/bin/python3.11)

    Thread 7085 (active+gil): "MainThread"
        pthread_cond_wait (libc.so.6)
        Condition.wait (threading.py:320)
            Locals:
                gotit: False

Frames are indented by four spaces; with `--locals`, variables follow, indented further. With `--native`, a frame without a
symbol is an address, and one without a source has only its library. With `--subprocesses`, each child's threads follow.
`py-spy dump --json` prints a list of threads, each with its frames. Both have the innermost frame first.
"""

import json
import re
from collections.abc import Sequence
from typing import cast

from forkpoint.evidence.stacks.threads import (
    MAX_FRAMES,
    MAX_THREADS,
    UNNAMED,
    Draft,
    Thread,
    latest_dump,
    read_number,
)
from forkpoint.evidence.text import clean

# ---------------------------------------------------------------------------------------------------------------------
# The text form.

MARKS = (" (idle", " (active")
"""Every text with stacks in this format contains one of them."""
_THREAD = re.compile(r'Thread (\d{1,19}|0x[0-9A-Fa-f]{1,16}) \((idle|active)(\+gil)?\)(?:: "(.{0,300})")?\s*$')
_PROCESS = re.compile(r"Process \d{1,19}: ")
_PYTHON = re.compile(r"Python v\d")
_PARENT = re.compile(r"Parent Process \d{1,19}: ")
_INDENT = "    "


def begins_stacks(line: str) -> bool:
    return bool(_THREAD.match(line))


def is_preamble(line: str) -> bool:
    return bool(_PROCESS.match(line) or _PYTHON.match(line))


def read_threads(lines: Sequence[str], first: int) -> list[Thread]:
    """`first`: the number of the first line in the file."""
    drafts: list[Draft] = []
    current: Draft | None = None
    child = False
    for number, line in enumerate(lines, first):
        if line.startswith(_INDENT):
            if current and line[4:5] != " ":
                _take(line, current)
        elif line.startswith("Thread "):
            header = _THREAD.match(line)
            current = _begin(header, number, child=child) if header and len(drafts) < MAX_THREADS else None
            drafts += [current] if current else []
        elif not line.startswith(" "):
            child = bool(_PARENT.match(line)) or (child and not _PROCESS.match(line))
            current = None
    return latest_dump(drafts)


def _begin(header: re.Match[str], number: int, *, child: bool) -> Draft:
    return Draft(number, header[1], name=header[4], state=header[2], holds_gil=bool(header[3]), child=child)


def _take(line: str, thread: Draft) -> None:
    """`    name (file:line)` or `    name (library)`; the name itself may contain parentheses."""
    name, opened, where = line.strip().rpartition(" (")
    if not opened or not where.endswith(")"):
        return
    file, colon, digits = where[:-1].rpartition(":")
    number = read_number(digits) if colon else 0
    thread.add(UNNAMED if name.startswith("0x") else name, file if number else where[:-1], number)


# ---------------------------------------------------------------------------------------------------------------------
# The JSON form.

_LIST = re.compile(r"\s{0,100}\[\s{0,100}\{")
_THREAD_ID = re.compile(r'"thread_id"\s{0,20}:')
"""Cannot match inside a string, where the quote would be escaped."""


def looks_like_json(head: str) -> bool:
    return bool(_LIST.match(head)) and '"thread_id"' in head and '"frames"' in head


def read_json_threads(text: str) -> list[Thread]:
    """Empty if the text is truncated, since it is then not valid JSON."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    if not isinstance(found, list):
        return []
    entries = cast("list[object]", found)[:MAX_THREADS]
    lines = _header_lines(text)
    drafts = [_read_json_thread(entry, lines[min(i, len(lines) - 1)]) for i, entry in enumerate(entries)]
    return latest_dump([draft for draft in drafts if draft])


def _header_lines(text: str) -> list[int]:
    lines: list[int] = []
    at, number = 0, 1
    for found in _THREAD_ID.finditer(text):
        number += text.count("\n", at, found.start())
        at = found.start()
        lines.append(number)
        if len(lines) == MAX_THREADS:
            break
    return lines or [1]


def _read_json_thread(entry: object, line: int) -> Draft | None:
    thread = _object(entry)
    frames = thread.get("frames")
    if not isinstance(frames, list):
        return None
    name = thread.get("thread_name")
    draft = Draft(
        line,
        f"{thread.get('pid')} {thread.get('thread_id')}",
        name=clean(name) if isinstance(name, str) else None,
        state="active" if thread.get("active") is True else "idle",
        holds_gil=thread.get("owns_gil") is True,
    )
    for frame in cast("list[object]", frames)[:MAX_FRAMES]:
        _take_json(_object(frame), draft)
    return draft


def _take_json(frame: dict[str, object], thread: Draft) -> None:
    name, file, line = frame.get("name"), frame.get("filename"), frame.get("line")
    if isinstance(name, str) and isinstance(file, str):
        number = line if isinstance(line, int) and 0 < line < 10**9 else 0
        thread.add(UNNAMED if name.startswith("0x") else name, file, number)


def _object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}
