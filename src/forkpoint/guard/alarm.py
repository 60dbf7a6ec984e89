"""Prints an alarm; in mode `raise`, ends the training."""

import ctypes
import os
import sys
import threading
import time
from typing import Final

from torch.distributed import distributed_c10d

from forkpoint.guard.overseer import Alarm

STOP_CODE: Final = 93
"""Tells job managers not to retry: the code is at fault."""
_GRACE_S: Final = 3.0


class RanksParted(RuntimeError):
    """Raised in the training thread of every rank, in mode `raise`. Its text is the verdict."""


def render(alarm: Alarm) -> str:
    told = alarm.told
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(alarm.when))
    lines = [f"forkpoint guard: {when} {told.cause}, confidence {told.confidence:.2f}: {told.summary}"]
    lines += [f"  at {site}" for site in told.sites]
    if alarm.folder:
        lines.append(f"  evidence: {alarm.folder}")
    return "\n".join(lines)


def say(text: str) -> None:
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # a full disk or a closed stream must not end a job


def end_training(text: str) -> None:
    """Raises in the main thread, and ends the process where that thread cannot be woken.

    A thread that waits inside C++ raises only when it comes back: NCCL's groups are aborted for that. Gloo's calls cannot
    be, so the process ends instead, with the verdict on stderr; its peers' calls then fail, too.
    """
    raised = threading.Event()

    def be_born(self: RanksParted, *_: object) -> None:
        RuntimeError.__init__(self, text)
        raised.set()

    kind = type("RanksParted", (RanksParted,), {"__init__": be_born, "__module__": RanksParted.__module__})
    main = threading.main_thread().ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main or 0), ctypes.py_object(kind))
    threading.Thread(target=_abort, daemon=True, name="forkpoint-abort").start()
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until:
        if raised.is_set():
            return
        time.sleep(0.05)
    say(f"{text}\nforkpoint guard: the training thread cannot be woken; this process ends with code {STOP_CODE}")
    os._exit(STOP_CODE)


def _abort() -> None:
    try:
        distributed_c10d._abort_process_group()  # noqa: SLF001 the only way
    except Exception as error:  # noqa: BLE001 a backend without it, or one that is already gone: the process ends instead
        say(f"forkpoint guard: the groups could not be aborted ({type(error).__name__})")
