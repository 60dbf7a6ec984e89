"""Threads with frames, which of a rank's threads counts, and which ranks are at the same place."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from forkpoint.evidence.stacks.shapes import Shape, find_last_call, find_shape
from forkpoint.evidence.text import clean
from forkpoint.model.frames import bare_name, is_library, is_python, is_user_code, place_of
from forkpoint.model.op import Frame, Stack

# ---------------------------------------------------------------------------------------------------------------------
# What every reader of live stacks returns: threads with frames; and which of a rank's threads counts.

MAX_THREADS = 4096
"""Per file; later threads are ignored. A rank has a few dozen."""
MAX_FRAMES = 1024
"""Per thread. faulthandler stops at 100."""
UNNAMED = "??"
"""The name of a native frame without a symbol, as gdb writes it: addresses mean nothing on another rank."""


class ThreadKind(StrEnum):
    """What a thread is for, as far as its name and frames show."""

    MAIN = "main"
    AUTOGRAD = "autograd"
    WATCHDOG = "watchdog"
    """NCCL's watchdog and its heartbeat monitor."""
    LOADER = "loader"
    """Pin-memory thread, queue feeder, or a loader's worker process."""
    OTHER = "other"


class Thread(Struct, frozen=True):
    name: str | None
    kind: ThreadKind
    stack: Stack
    """Native frames have a library or C source as their file, and line 0 if it is unknown."""
    line: int
    """The line of its header in the file."""
    state: str | None
    """`idle`, `active`, `garbage-collecting`, `waiting for the GIL`; None if the format does not say."""
    holds_gil: bool
    asked: bool = False
    """The thread that wrote the dump, which is not work of the program."""
    seen: int = 1
    """In how many dumps of the file it has exactly these frames: a thread that makes progress is seen once."""


class RankStacks(Struct, frozen=True):
    """All threads of one rank at one moment."""

    rank: int | None
    file: str
    threads: tuple[Thread, ...]
    pid: int | None = None
    """Of the process, if the text states it."""

    @property
    def main(self) -> Thread | None:
        """The main thread; if there are several (a native and a Python view of it), the last one with Python frames."""
        found = [thread for thread in self.threads if thread.kind is ThreadKind.MAIN and thread.stack]
        return next((thread for thread in reversed(found) if has_python(thread.stack)), found[-1] if found else None)

    @property
    def line(self) -> int:
        """The line of the main thread's header in the file; 0 if there is none."""
        return self.main.line if self.main else 0

    @property
    def helper(self) -> Thread | None:
        """The thread for which main waits: autograd's in `backward`; or, if main waits for a lock, a future or a queue, the
        only other busy thread; of a future, the only busy one of a pool.
        """
        main = self.main.stack if self.main else ()
        if next((bare_name(f) for f in main if is_python(f)), "") == "_engine_run_backward":
            found = [t for t in self.threads if t.kind is ThreadKind.AUTOGRAD and has_python(t.stack)]
        elif main and find_shape(main) is Shape.LOCK:
            busy = [t for t in self.threads if t.kind is ThreadKind.OTHER and _is_busy(t)]
            pooled = [t for t in busy if _has_file(t.stack, _POOL)] if _has_file(main, _FUTURE) else []
            found = pooled or busy
        else:
            found = []
        return found[0] if len(found) == 1 else None

    @property
    def stack(self) -> Stack:
        """Where the rank is: main's frames and, if main waits for another thread, that thread's frames on top of them. Empty
        without a main thread.
        """
        main, helper = self.main, self.helper
        return ((helper.stack if helper else ()) + main.stack) if main else ()


_FUTURE, _POOL = "/concurrent/futures/_base.py", "/concurrent/futures/thread.py"


def _has_file(stack: Stack, name: str) -> bool:
    return any(f"/{frame.filename}".endswith(name) for frame in stack)  # py-spy leaves out folders


_AT_WORK = frozenset(
    {
        Shape.COLLECTIVE,
        Shape.COMM_INIT,
        Shape.FILE_IO,
        Shape.NETWORK_IO,
        Shape.SUBPROCESS,
        Shape.CUDA_SYNC,
        Shape.COMPILE,
    }
)


def _is_busy(thread: Thread) -> bool:
    """It runs code of the program: it neither waits for work nor belongs to a library."""
    shape = find_shape(thread.stack)
    works = shape is Shape.PYTHON and any(map(is_user_code, thread.stack))
    return not thread.asked and (works or shape in _AT_WORK)


class Draft(Struct):
    """A thread while it is read."""

    line: int
    ident: str
    """The same for the same thread in a later dump of the file."""
    name: str | None = None
    state: str | None = None
    holds_gil: bool = False
    frames: list[Frame] = field(default_factory=list[Frame])
    native: list[Frame] = field(default_factory=list[Frame])
    """For formats that list native frames separately."""
    truncated: bool = False
    """The outermost frames are missing."""
    asked: bool = False
    """The thread that wrote the dump: signals are handled in the main thread."""
    child: bool = False
    """It belongs to a process that the rank started: never the rank's main thread, whatever its name."""

    def add(self, name: str, filename: str, line: int) -> None:
        _append(self.frames, name, filename, line)

    def add_native(self, name: str, filename: str, line: int) -> None:
        _append(self.native, name, filename, line)

    def finish(self) -> Thread:
        """The kind comes from the name if possible, else from the frames. A thread is main only if something shows it, never
        because it is last: a truncated file ends in another thread.
        """
        stack = _join(self.native, self.frames)
        kind = _kind_by_name(self.name or "") or _kind_by_frames(stack)
        if not kind:
            shown = self.asked if self.truncated else ends_in_program(stack)
            kind = ThreadKind.MAIN if not self.child and (shown or self.name == "MainThread") else ThreadKind.OTHER
        return Thread(self.name, kind, stack, self.line, self.state, self.holds_gil, self.asked)


def read_number(digits: str) -> int:
    """A line number; 0 if it is unknown or impossible."""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 10 else 0


def latest_dump(drafts: Sequence[Draft]) -> list[Thread]:
    """A file may contain several dumps. The last one with a main thread counts, else the last one."""
    dumps: list[list[Draft]] = [[]]
    seen: set[str] = set()
    for draft in drafts:
        if draft.ident in seen:
            dumps.append([])
            seen.clear()
        seen.add(draft.ident)
        dumps[-1].append(draft)
    finished = [[draft.finish() for draft in dump] for dump in dumps]
    chosen = next((d for d in reversed(finished) if any(t.kind is ThreadKind.MAIN for t in d)), finished[-1])
    shown = Counter(
        (draft.ident, t.stack)
        for dump, d in zip(dumps, finished, strict=True)
        for draft, t in zip(dump, d, strict=True)
    )
    idents = [draft.ident for draft in dumps[finished.index(chosen)]]
    return [replace(t, seen=shown[ident, t.stack]) for ident, t in zip(idents, chosen, strict=True)]


_NAMES = (
    ("pt_autograd", ThreadKind.AUTOGRAD),
    ("pt_nccl_watchdg", ThreadKind.WATCHDOG),
    ("pt_nccl_heartbt", ThreadKind.WATCHDOG),
    ("ncclCommWatchdog", ThreadKind.WATCHDOG),
    ("pt_data_", ThreadKind.LOADER),
    ("pin_memory", ThreadKind.LOADER),
    ("QueueFeederThre", ThreadKind.LOADER),
)
"""Prefixes, since Linux cuts thread names after 15 characters."""
_NATIVE = (
    ("ncclCommWatchdog", ThreadKind.WATCHDOG),
    ("ProcessGroupNCCL::Watchdog", ThreadKind.WATCHDOG),
    ("ProcessGroupNCCL::watchdogHandler", ThreadKind.WATCHDOG),
    ("ProcessGroupNCCL::HeartbeatMonitor", ThreadKind.WATCHDOG),
    ("ProcessGroupNCCL::heartbeatMonitor", ThreadKind.WATCHDOG),
    ("autograd::Engine::thread_init", ThreadKind.AUTOGRAD),
    ("autograd::python::PythonEngine::thread_init", ThreadKind.AUTOGRAD),
)
_LOADERS = frozenset(
    {
        ("_worker_loop", "/torch/utils/data/_utils/worker.py"),
        ("_pin_memory_loop", "/torch/utils/data/_utils/pin_memory.py"),
        ("_feed", "/multiprocessing/queues.py"),
    }
)
# Autograd's threads begin in C++: their outermost Python frame is a hook or a function's backward.
_HOOKS = (
    "/torch/autograd/function.py",
    "/torch/utils/checkpoint.py",
    "/torch/distributed/fsdp/",
    "/torch/_functorch/_aot_autograd/runtime_wrappers.py",
    "/deepspeed/runtime/zero/",
)
_PROGRAM_ENTRIES = frozenset({"Py_BytesMain", "Py_RunMain", "Py_Main", "main", "_start"})


def _kind_by_name(name: str) -> ThreadKind | None:
    if "(_pin_memory_loop)" in name:
        return ThreadKind.LOADER
    return next((kind for start, kind in _NAMES if name.startswith(start)), None)


@lru_cache(maxsize=1024)
def _kind_by_frames(stack: Stack) -> ThreadKind | None:
    for frame in stack:
        if is_python(frame):
            place = place_of(frame)
            if any(bare_name(frame) == name and place.endswith(file) for name, file in _LOADERS):
                return ThreadKind.LOADER
        else:
            kind = next((kind for part, kind in _NATIVE if part in frame.name), None)
            if kind:
                return kind
    outermost = next((frame for frame in reversed(stack) if is_python(frame)), None)
    begins_in_hook = outermost is not None and any(part in place_of(outermost) for part in _HOOKS)
    return ThreadKind.AUTOGRAD if begins_in_hook else None


_ENTRY_FILES = ("/default_worker.py", "/<string>", "/<stdin>")
"""Ray's workers start in a file of a library, spawned processes in `python -c`."""
_AT_EXIT = frozenset(
    {
        ("_shutdown", "/threading.py"),
        ("_python_exit", "/concurrent/futures/thread.py"),
        ("_python_exit", "/concurrent/futures/process.py"),
        ("_exit_function", "/multiprocessing/util.py"),
    }
)


@lru_cache(maxsize=1024)
def ends_in_program(stack: Stack) -> bool:
    """The outermost frame is a script, `python -m`, an exit handler, or the interpreter's entry point; or `runpy` runs the script, for a
    launcher: so this is the complete stack of a main thread.
    """
    outermost = next((frame for frame in reversed(stack) if is_python(frame)), None)
    if outermost is None:
        return any(frame.name in _PROGRAM_ENTRIES for frame in stack[-6:])
    name, place = bare_name(outermost), place_of(outermost)
    if name != "<module>":
        at_exit = any(name == n and place.endswith(file) for n, file in _AT_EXIT)
        return name == "_run_module_as_main" or at_exit or any(map(_is_run, stack, stack[1:]))
    # A library's `<module>` as the outermost frame is an importing thread in a truncated file.
    return not is_library(outermost) or place.endswith(_ENTRY_FILES)


def _is_run(frame: Frame, caller: Frame) -> bool:
    return frame.name == "<module>" and not is_library(frame) and bare_name(caller) == "_run_code"


def has_python(stack: Stack) -> bool:
    return any(is_python(frame) for frame in stack)


def _append(frames: list[Frame], name: str, filename: str, line: int) -> None:
    if len(frames) < MAX_FRAMES:
        frames.append(_frame(name, filename, line))


@lru_cache(maxsize=4096)
def _frame(name: str, filename: str, line: int) -> Frame:
    """Shared between ranks: thousands of them have the same few frames."""
    return Frame(clean(name) or UNNAMED, clean(filename), line)


_INTERPRETER = ("_PyEval_", "PyEval_", "_PyObject_", "PyObject_", "_PyFunction_", "cfunction_")


def _join(native: Sequence[Frame], python: Sequence[Frame]) -> Stack:
    """Joins both views of a thread: the native frames inside the innermost Python frame, then the Python frames."""
    if not python:
        return tuple(native)
    depths = (
        depth
        for depth, frame in enumerate(native)
        if frame.name.startswith(_INTERPRETER) or "libpython" in frame.filename
    )
    return (*native[: next(depths, 0)], *python)


# ---------------------------------------------------------------------------------------------------------------------
# Which ranks are at the same place.


class Cluster(Struct, frozen=True):
    ranks: tuple[int, ...]
    shape: Shape
    stack: Stack
    """The stack of the lowest rank."""


class PlacedStack(Protocol):
    """A rank's stack and where it was read."""

    @property
    def rank(self) -> int | None: ...
    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def stack(self) -> Stack: ...


def cluster(stacks: Sequence[PlacedStack]) -> tuple[Cluster, ...]:
    """Groups ranks by where they are, largest group first. Stacks without a rank, without a main thread, or that cannot be
    compared are left out. If a rank has several stacks, the file whose name sorts last counts (dumps are named by time).
    The order of the input does not matter.
    """
    latest: dict[int, PlacedStack] = {}
    for one in sorted(_comparable(stacks), key=_file_and_line):
        if one.rank is not None:
            latest[one.rank] = one
    together: dict[_Place, list[int]] = defaultdict(list)
    for rank in sorted(latest):
        together[_place(latest[rank].stack)].append(rank)
    found = [Cluster(tuple(ranks), place[0], latest[ranks[0]].stack) for place, ranks in together.items()]
    return tuple(sorted(found, key=lambda c: (-len(c.ranks), c.ranks)))


_Place = tuple[Shape, str, tuple[tuple[str, str, int], ...]]
"""Shape, the library function that the user's code called, the user's frames."""
_WRAPPERS = ("/torch/distributed/c10d_logger.py", "/torch/utils/_contextlib.py", "/contextlib.py", "/functools.py")


def _comparable(stacks: Sequence[PlacedStack]) -> list[PlacedStack]:
    """If some stacks are complete Python stacks, the others (truncated, too deep, native) would only look odd: drop them."""
    whole = [one for one in stacks if has_python(one.stack) and ends_in_program(one.stack)]
    return whole or [one for one in stacks if one.stack]


def _file_and_line(one: PlacedStack) -> tuple[str, int]:
    return one.file, one.line


@lru_cache(maxsize=1024)
def _place(stack: Stack) -> _Place:
    """Ignores folders, and lines inside libraries: a rank that polls may be at any of several lines. Cached, because many
    ranks share a few stacks.
    """
    user = tuple(_short(frame, frame.line) for frame in stack if is_user_code(frame))
    if user:
        return find_shape(stack), _entered(stack), user
    shown = [frame for frame in stack if is_python(frame)] or [frame for frame in stack if frame.name != UNNAMED]
    return find_shape(stack), "", tuple(_short(frame, 0) for frame in shown)


def _entered(stack: Stack) -> str:
    call = [frame for frame in find_last_call(stack) if is_python(frame)]
    named = (frame for frame in reversed(call) if not place_of(frame).endswith(_WRAPPERS))
    return next((bare_name(frame) for frame in named), "")


def _short(frame: Frame, line: int) -> tuple[str, str, int]:
    return place_of(frame).rpartition("/")[2], bare_name(frame), line
