"""Python stacks of a hung rank as faulthandler writes them: `File "x", line n in f`, innermost frame first."""

import re

from forkpoint.ingest.text import clean
from forkpoint.model.capture import LiveStack
from forkpoint.model.op import Frame, Stack

_FRAME = re.compile(r'^\s*File "([^"]{1,1000})", line (\d{1,9}) in (.{1,300})$')
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+ .*\(most recent call first\):")


STACKS_MARK = "(most recent call first):"


def is_only_stacks(head: str) -> bool:
    """The file begins with a thread's header; a log may also have stacks in its middle."""
    return bool(_THREAD.match(head.lstrip()))


def read_stacks(text: str, file: str, rank: int) -> LiveStack | None:
    """The main thread's stack. faulthandler lists it last; a signal reaches it, so it is also the current one."""
    found: list[tuple[int, list[Frame]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        frame = _FRAME.match(line)
        if _THREAD.match(line):
            found.append((number, []))
        elif frame and found:
            found[-1][1].append(Frame(clean(frame[3]), clean(frame[1]), int(frame[2])))
    threads: list[tuple[int, Stack]] = [(number, tuple(frames)) for number, frames in found if frames]
    if not threads:
        return None
    main = next((t for t in reversed(threads) if t[1][-1].name == "<module>"), threads[-1])
    return LiveStack(rank=rank, file=file, line=main[0], stack=main[1])
