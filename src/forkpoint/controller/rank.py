"""What runs in each rank's process: the trainer, and beside it a witness that answers while the trainer is stuck."""

import os
import socket
import sys
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any

from monarch.actor import Actor, current_rank, endpoint

from forkpoint.controller.answers import Hello, Raised, RecorderLook, Returned, Testimony

MAX_ERROR = 200
"""Characters: one sentence. The traceback has the full text."""

# torch is imported where it is used: the controller's own process works without it.


class RankActor(Actor):
    """Holds the trainer. Its calls run one after another on one thread."""

    def __init__(self, trainer: Callable[[], object], backend: str | None) -> None:
        point = current_rank()
        self._make = trainer
        self._backend = backend
        self._rank = point.rank
        self._local_rank = point[point.extent.labels[-1]]
        self._size = point.extent.nelements
        self._store: Any = None
        self._trainer: object = None

    @endpoint
    def greet(self) -> Hello:
        """Rank 0 opens the store on a port that the kernel chooses, so that no other job can take it in between."""
        address = None
        if self._rank == 0:
            from torch._C._distributed_c10d import TCPStore  # noqa: PLC0415 as said

            self._store = TCPStore("localhost", 0, self._size, is_master=True, wait_for_workers=False)
            address = (socket.gethostname(), self._store.port)
        return Hello(self._rank, os.getpid(), os.getppid(), address)

    @endpoint
    def start(self, address: tuple[str, int]) -> Returned | Raised:
        return answer(self._rank, 0, lambda: self._start(address))

    @endpoint
    def run(self, call: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Returned | Raised:
        return answer(self._rank, call, lambda: getattr(self._trainer, method)(*args, **kwargs))

    def _start(self, address: tuple[str, int]) -> None:
        import torch  # noqa: PLC0415 as said
        import torch.distributed as dist  # noqa: PLC0415 as said
        from torch._C._distributed_c10d import TCPStore  # noqa: PLC0415 as said

        host, port = address
        names = {"RANK": self._rank, "WORLD_SIZE": self._size, "LOCAL_RANK": self._local_rank}
        os.environ.update({name: str(number) for name, number in names.items()})
        os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port))
        if torch.cuda.is_available():
            torch.cuda.set_device(self._local_rank)
        backend = self._backend or ("nccl" if torch.cuda.is_available() else "gloo")
        store = self._store or TCPStore(host, port, self._size, is_master=False)
        dist.init_process_group(backend, store=store, rank=self._rank, world_size=self._size)
        self._trainer = self._make()
        # Connections are made on first use: a rank that cannot be reached shows now, and not in the first step.
        dist.barrier(device_ids=[self._local_rank] if backend == "nccl" else None)


class WitnessActor(Actor):
    """A separate thread in the same process: it reads the recorder and the stacks while the trainer waits."""

    def __init__(self) -> None:
        self._rank = current_rank().rank

    @endpoint
    def count(self) -> RecorderLook:
        """The groups' own counters: fast, but they include messages."""
        from forkpoint.controller.recorder import count_issued  # noqa: PLC0415 as said

        return RecorderLook(self._rank, count_issued(), ())

    @endpoint
    def look(self) -> RecorderLook:
        from forkpoint.controller.recorder import look  # noqa: PLC0415 as said

        return look(self._rank)

    @endpoint
    def testify(self) -> Testimony:
        from forkpoint.controller.recorder import fullest_dump  # noqa: PLC0415 as said
        from forkpoint.guard.recorder import find_groups  # noqa: PLC0415 as said

        return Testimony(self._rank, fullest_dump(), stacks_of_call(), tuple(find_groups()))


def answer(rank: int, call: int, step: Callable[[], Any]) -> Returned | Raised:
    from forkpoint.controller.recorder import count_issued  # noqa: PLC0415 as said

    try:
        value = step()
    except BaseException as error:  # noqa: BLE001 - whatever the trainer raises is this rank's answer
        last = " ".join(traceback.format_exception_only(error)[-1].split())
        return Raised(rank, call, last[:MAX_ERROR], "".join(traceback.format_exception(error)))
    return Returned(rank, call, value, count_issued())


def stacks_of_call() -> str:
    """The stack of the running call, as py-spy prints it. It runs on a thread of Monarch, which for the trainer is the main
    one; the process's real main thread only waits for messages.
    """
    for ident, innermost in sys._current_frames().items():  # noqa: SLF001 - as faulthandler, but by thread
        frames = _frames_of_call(innermost)
        if frames:
            lines = [f"    {f.f_code.co_qualname} ({f.f_code.co_filename}:{f.f_lineno})" for f in frames]
            return "\n".join([f'Thread {ident} (idle): "MainThread"', *lines, ""])
    return ""


def _frames_of_call(innermost: FrameType) -> list[FrameType]:
    """The trainer's own frames, innermost first; none if this thread runs no call."""
    frames: list[FrameType] = []
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code is not answer.__code__:
        if frame.f_code.co_filename != __file__:
            frames.append(frame)
        frame = frame.f_back
    return frames if frame is not None else []
