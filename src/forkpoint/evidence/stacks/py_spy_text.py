"""Stacks as `py-spy dump` prints them, innermost frame first.

    Process 7085: python train.py
    Python v3.11.2 (/usr/bin/python3.11)

    Thread 7085 (active+gil): "MainThread"
        pthread_cond_wait (libc.so.6)
        Condition.wait (threading.py:320)
            Locals:
                gotit: False

Frames stand four spaces in; with `--locals` their values follow, further in. With `--native` a frame without a symbol
is its address, and one without a source has only its library. With `--subprocesses` each child's threads follow.
"""

import re
from collections.abc import Sequence

from forkpoint.evidence.stacks.threads import MAX_THREADS, UNNAMED, Draft, Thread, latest_dump, read_number

MARKS = (" (idle", " (active")
"""A text without any holds no stacks of this format."""
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
    """`first`: the number of the first line in its file."""
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
    """`    name (file:line)` or `    name (library)`; the name may hold parentheses of its own."""
    name, opened, where = line.strip().rpartition(" (")
    if not opened or not where.endswith(")"):
        return
    file, colon, digits = where[:-1].rpartition(":")
    number = read_number(digits) if colon else 0
    thread.add(UNNAMED if name.startswith("0x") else name, file if number else where[:-1], number)
