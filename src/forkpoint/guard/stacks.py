"""Where every thread of this process stands now, as `py-spy dump` prints it: the engine reads that."""

import os
import sys
import threading
from types import FrameType
from typing import Final

_DEPTH: Final = 100


def dump_stacks(own_thread: int) -> str:
    """All threads but the guard's own. The main thread first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)  # noqa: SLF001 documented for debuggers
    version = ".".join(map(str, sys.version_info[:3]))
    lines = [f"Process {os.getpid()}: {' '.join(sys.argv)[:200]}", f"Python v{version} ({sys.executable})", ""]
    for ident, frame in frames:
        if ident != own_thread:
            name = "MainThread" if ident == main else names.get(ident, "unnamed")
            lines += [f'Thread {ident} (active): "{name}"', *_frames(frame), ""]
    return "\n".join(lines)


def communication_call() -> str:
    """The torch.distributed function in which the main thread stands; "" where it stands elsewhere.

    Gloo's send and recv are in no recorder: only the stack tells that a rank waits in one.
    """
    main = threading.main_thread().ident
    frame = sys._current_frames().get(main) if main else None  # noqa: SLF001 documented for debuggers
    if frame is None or frame.f_globals.get("__name__") != "torch.distributed.distributed_c10d":
        return ""
    return frame.f_code.co_name


def _frames(frame: FrameType | None) -> list[str]:
    lines: list[str] = []
    while frame is not None and len(lines) < _DEPTH:
        lines.append(f"    {frame.f_code.co_name} ({frame.f_code.co_filename}:{frame.f_lineno})")
        frame = frame.f_back
    return lines
