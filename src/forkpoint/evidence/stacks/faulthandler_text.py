"""Stacks as Python's faulthandler writes them, innermost frame first.

    Thread 0x00007f99f13fe6c0 [pt_autograd_0] (most recent call first):
      File "/train/train.py", line 16 in log_progress

Python 3.14 added the name in brackets and the crashing thread's C stack (`Binary file "x", at f+0x1d [0x7f..]`). A thread
has at most 100 frames; then comes `...` up to 3.12, nothing from 3.13 on. The newest thread comes first, main last; the
current thread is the one that wrote the dump, which need not be main.
"""

import re
from collections.abc import Sequence

from forkpoint.evidence.stacks.threads import MAX_THREADS, Draft, Thread, latest_dump, read_number

MARKS = ("(most recent call first):",)
"""Every text with stacks in this format contains one of them."""
_HEADER = re.compile(
    r"(?:Current thread|Thread) 0x([0-9a-f]{1,16})(?: \[([^\]]{1,100})\])? \(most recent call first\):"
)
_ALONE = "Stack (most recent call first):"
"""Written if only one thread was requested, or on a build without the GIL. (CMake's begins with `Call Stack`.)"""
_NATIVE_STACK = "Current thread's C stack trace (most recent call first):"
_FRAME = re.compile(r'  File (?:"([^"]{1,1000})"|\?\?\?), line (\d{1,9}|\?\?\?) in (.{1,600})$')
_NATIVE_FRAME = re.compile(r'  Binary file "([^"]{1,1000})"(?:, at ([^+\-\[ ]{0,600})[+-]0x[0-9a-f]{1,16})? \[0x')
_DEEPEST = 100
_TOP = re.compile(r"Timeout \(\d|<Cannot show all threads|Extension modules: ")
"""Without `Fatal Python error: `: a file with that is a log."""


def begins_stacks(line: str) -> bool:
    return bool(_HEADER.match(line)) or line == _ALONE


def is_preamble(line: str) -> bool:
    return bool(_TOP.match(line))


def read_threads(lines: Sequence[str], first: int) -> list[Thread]:
    """`first`: the number of the first line in the file."""
    drafts: list[Draft] = []
    current: Draft | None = None
    for number, line in enumerate(lines, first):
        if MARKS[0] in line:
            if line.startswith(_NATIVE_STACK):
                current = next((d for d in reversed(drafts) if d.asked), drafts[-1] if drafts else None)
                continue
            current = _begin(line, number) if len(drafts) < MAX_THREADS else None
            drafts += [current] if current else []
        elif current and not line.strip():
            current = None
        elif current:
            _take(line, current)
    return latest_dump(drafts)


def _begin(line: str, number: int) -> Draft | None:
    if line == _ALONE:
        return Draft(number, _ALONE)
    header = _HEADER.match(line)
    if not header:
        return None
    return Draft(number, header[1], name=header[2], asked=line.startswith("Current"))


def _take(line: str, thread: Draft) -> None:
    frame = _FRAME.match(line)
    native = None if frame else _NATIVE_FRAME.match(line)
    if frame:
        thread.add(frame[3], frame[1] or "", read_number(frame[2]))
        thread.truncated = len(thread.frames) >= _DEEPEST
    elif native:
        thread.add_native(native[2] or "", native[1], 0)
    elif line == "  Garbage-collecting":
        thread.state = "garbage-collecting"
