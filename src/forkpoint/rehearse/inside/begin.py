"""Called by autoload in every process of a rehearsed job: reads the order and installs the taps, which start the guard."""

import atexit
import os
import sys
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final

import torch
import torch.distributed as dist

from forkpoint.guard import start as start_guard
from forkpoint.guard.recorder import TorchRecorder, find_groups
from forkpoint.guard.settings import read_settings
from forkpoint.model.world import ProcessGroup
from forkpoint.rehearse.inside.loop_items import LoopItems
from forkpoint.rehearse.inside.notes import Notes
from forkpoint.rehearse.inside.places import CodePlaces
from forkpoint.rehearse.inside.taps import Taps
from forkpoint.rehearse.listening import InsideRank, Listener
from forkpoint.rehearse.model import ORDER_VARIABLE, Left, RunMode, RunOrder, read_value, write_value
from forkpoint.rehearse.paths import PathFile, StepFile
from forkpoint.rehearse.perturbations import find_perturbation

_CLAIMED: Final = "FORKPOINT_REHEARSE_PID"
"""Pid of the rank itself: its child processes inherit RANK, but are not ranks."""
_BEGUN: Final = "FORKPOINT_REHEARSE_BEGUN"
_MAX_ERROR: Final = 4000


def begin() -> None:
    """Once in each process: a new one begins when it imports torch, a fork before it runs the script."""
    if os.environ.get(_BEGUN) == str(os.getpid()):
        return
    os.environ[_BEGUN] = str(os.getpid())
    order = read_value(Path(os.environ[ORDER_VARIABLE]), RunOrder)
    if order is None or not _is_ours():
        return
    places = CodePlaces(order.roots)
    if order.mode is RunMode.FAKE:
        from forkpoint.rehearse.inside.schedule import pretend  # noqa: PLC0415 uses torch's test helpers, imported only if needed

        pretend(order, int(os.environ["RANK"]), places)
        return
    steps = StepFile(order.folder)
    rank = _Rank(order, steps, places)
    here = lambda: places.nearest(sys._getframe(1))  # noqa: E731, SLF001 documented
    inside = InsideRank(torch, order, _rank, lambda: steps.steps, rank.mark, here)
    listener = _listener(order, inside)
    taps = Taps(listener, places, on_join=rank.join, on_step=steps.set)
    taps.open_least(cpu=order.cpu)
    if order.mode is RunMode.CALM or (order.trial is not None and _rank() in (None, *order.trial.ranks)):
        taps.open_all()
    if isinstance(listener, Notes):
        listener.after_first_steps = taps.close_modules
        atexit.register(listener.write)


def _is_ours() -> bool:
    own = str(os.getpid())
    return "RANK" not in os.environ or os.environ.setdefault(_CLAIMED, own) == own


def _rank() -> int | None:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    told = os.environ.get("RANK", "")
    return int(told) if told.isdecimal() else None


def _listener(order: RunOrder, inside: InsideRank) -> Listener:
    if order.mode is RunMode.CALM:
        return Notes(inside)
    if order.trial is not None and _rank() in (None, *order.trial.ranks):
        return find_perturbation(order.trial.kind)(inside)
    return Listener(inside)


class _Rank:
    """This rank, from joining to its end: its steps, its path, and what it leaves behind."""

    def __init__(self, order: RunOrder, steps: StepFile, places: CodePlaces) -> None:
        self._order = order
        self._steps = steps
        self._places = places
        self._recorder: TorchRecorder | None = None
        self._number = -1
        self._groups: tuple[ProcessGroup, ...] = ()
        self._path: PathFile | None = None
        self._pid = os.getpid()

    def mark(self) -> None:
        if self._path is not None and os.getpid() == self._pid:  # not in a loader's worker
            self._path.mark()

    def join(self) -> None:
        if self._recorder is not None:  # init_process_group was called again
            return
        self._number = dist.get_rank()
        self._recorder = TorchRecorder()
        self._groups = tuple(find_groups())
        self._steps.open_for(self._number)
        settings = read_settings()
        if settings is not None:
            start_guard(settings)
        if self._order.trial is not None:
            self._prepare_trial(self._order.trial.rank)

    def _prepare_trial(self, disturbed: int) -> None:
        atexit.register(self._leave, "")
        before = sys.excepthook

        def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self._leave("".join(traceback.format_exception(error))[-_MAX_ERROR:])
            before(kind, error, trace)

        sys.excepthook = hook
        if self._number in (disturbed, self._order.other):
            self._path = PathFile(self._order.folder, self._number)
            follow(self._path, self._places)

    def _leave(self, error: str) -> None:
        """Writes only once: an error comes before the exit."""
        told = Path(self._order.folder) / f"left_rank_{self._number}.json"
        if self._recorder is None or told.exists():
            return
        write_value(told, Left(self._number, error, tuple(find_groups()) or self._groups))
        # As with the guard: a rank that finished normally leaves no dump.
        evidence = Path(self._order.folder) / "evidence"
        evidence.mkdir(exist_ok=True)
        if error:
            (evidence / f"trace_rank_{self._number}").write_bytes(self._recorder.dump())


# ---------------------------------------------------------------------------------------------------------------------
# Records every line of the user's code that the main thread executes.


def follow(path: PathFile, places: CodePlaces) -> None:
    """Also follows frames that are already running: the training loop may be one of them."""
    loops = LoopItems()

    def local(frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            site = places.at(frame)
            if site is not None:
                path.add(path.number_of(site.file), site.line, loops.item(frame))
        return local

    def entered(frame: FrameType, _event: str, _arg: Any) -> Any:
        return local if places.at(frame) is not None else None

    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 documented
    while frame is not None:
        if places.at(frame) is not None:
            frame.f_trace = local
        frame = frame.f_back
    sys.settrace(entered)
    os.register_at_fork(after_in_child=lambda: sys.settrace(None))  # a loader's worker would write into this path
