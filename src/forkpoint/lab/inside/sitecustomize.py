"""Runs inside every rank of a recorded job: stacks on SIGUSR1, and dumps where no watchdog writes them.

Gloo has no watchdog: a dump is written when the recorder has seen nothing new for a while, when the job has run for long,
or when gloo raises because of another rank. A job that runs to its end writes its dump at exit.
"""

import atexit
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from types import TracebackType

_PR_SET_PDEATHSIG = 1
_failed = threading.Event()
_files = threading.Lock()
"""Held while the dump is written or removed: the dump of a failure stays."""


def _trace(*, stacks: bool = True) -> bytes:
    c10d = import_module("torch._C._distributed_c10d")  # type checkers do not know all of it
    dump = c10d._dump_nccl_trace if os.environ["BACKEND"] == "nccl" else c10d._dump_fr_trace  # noqa: SLF001 - there is no public way
    return dump(includeStackTraces=stacks)


def _dump(path: Path) -> None:
    path.write_bytes(_trace())


def _wait_for_group(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        dist = sys.modules.get("torch.distributed")
        if dist is not None and getattr(dist, "is_initialized", bool)():
            return
        time.sleep(0.2)


def _dump_when_quiet(path: Path, mark: Path, timeout: float) -> None:
    """The mark tells the lab to take stacks. Dump and mark are removed if the job was only slow.

    It was slow if it goes on before the timeout; whatever happens later is already the failure.
    """
    _wait_for_group(60)
    mark.with_suffix(".joined").touch()
    seen, changed, began = None, time.monotonic(), time.monotonic()
    while time.monotonic() < changed + 0.9 * timeout:
        time.sleep(0.5)
        now = _trace(stacks=False)
        if now != seen or b"retired" not in now:  # something new, or nothing recorded yet
            seen, changed = now, time.monotonic()
            _take_back(path, mark)
        if not mark.exists() and time.monotonic() > min(changed + 0.35 * timeout, began + 2 * timeout):
            mark.touch()
            time.sleep(1)  # for the stacks to be taken before the dump disturbs them
            _dump(path)
        if time.monotonic() > began + 2 * timeout:
            return


def _take_back(path: Path, mark: Path) -> None:
    with _files:
        if not _failed.is_set():
            mark.unlink(missing_ok=True)
            path.unlink(missing_ok=True)


def _dump_when_peer_fails(path: Path) -> None:
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.__excepthook__(kind, error, trace)
        if "gloo/transport" in str(error):
            with _files:
                _failed.set()
                if not path.exists():
                    _dump(path)

    sys.excepthook = hook


def _start() -> None:
    # If the process that started the ranks is killed, they end with it.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # applies again when the interpreter shuts down
    stacks = Path(os.environ.pop("STACK_FILE")).open("a")  # noqa: SIM115 - open as long as the process lives
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    path = Path(os.environ.pop("TRACE_FILE"))
    _import_early()
    match os.environ.pop("TRACE_WHEN"):
        case "end":
            atexit.register(_dump, path)
        case "quiet":
            _dump_when_peer_fails(path)
            args = (path, Path(os.environ.pop("QUIET_FILE")), float(os.environ["PG_TIMEOUT"]))
            threading.Thread(target=_dump_when_quiet, args=args, daemon=True, name="trace").start()
        case _:
            pass  # the watchdog writes them


def _import_early() -> None:
    """What the first optimizer and the first dump with stacks would import: it takes seconds that look like a hang, and fails
    if two threads do it at once.
    """
    for name in ("torch", "torch._dynamo", "torch._inductor"):
        import_module(name)


# Child processes of a rank do not have these variables, and are left alone.
if "STACK_FILE" in os.environ:
    _start()
