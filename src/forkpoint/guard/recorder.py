"""Torch's own recorder and this process's stacks, read from inside: counters at every look, calls when something moved,
and everything on request.

Nothing is wrapped, so calls that never pass through Python (DDP's reducer, FSDP, compiled graphs) are seen as well.
"""

import ctypes
import importlib
import json
import os
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

from forkpoint.model.world import ProcessGroup


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """The counters of one group in this process; -1 = none yet."""

    enqueued: int
    completed: int


class TorchRecorder:
    """NCCL has its own recorder, the other libraries share one; a job with NCCL groups is read from NCCL's."""

    def __init__(self) -> None:
        module: Any = c10d
        nccl = any(backend == "nccl" for backend in map(dist.get_backend, distributed_c10d._world.pg_map))  # noqa: SLF001 the only list of groups there is
        self._dump: Any = module._dump_nccl_trace if nccl else module._dump_fr_trace  # noqa: SLF001 torch's only way
        self._dump_json: Any = module._dump_nccl_trace_json if nccl else module._dump_fr_trace_json  # noqa: SLF001 as said

    def counters(self) -> dict[int, GroupCounters]:
        """By pg_id. Costs about 10 microseconds."""
        status = json.loads(self._dump_json(includeCollectives=False)).get("pg_status", {})
        return {
            int(pg_id): GroupCounters(int(s["last_enqueued_collective"]), int(s["last_completed_collective"]))
            for pg_id, s in status.items()
        }

    def calls(self) -> bytes:
        """All calls that are held, without stacks. About 10 microseconds each, with the GIL held."""
        return self._dump(includeCollectives=True, includeStackTraces=False)

    def dump(self) -> bytes:
        """As `calls`, with stacks."""
        with without_inductor():
            return self._dump(includeCollectives=True, includeStackTraces=True)


def is_running() -> bool:
    return dist.is_available() and dist.is_initialized()


def find_groups() -> dict[ProcessGroup, dist.ProcessGroup]:
    """Groups of this rank, from torch itself: gloo's recorder does not say who belongs to a group."""
    world = distributed_c10d._world  # noqa: SLF001 the only list of groups there is
    return {
        ProcessGroup(name, group.group_desc, tuple(world.pg_group_ranks[group])): group
        for group, name in list(world.pg_names.items())
        if group in world.pg_group_ranks
    }


# ---------------------------------------------------------------------------------------------------------------------
# Stacks from the recorder without loading torch's compiler.
#
# To name frames torch asks whether `torch._inductor` has compiled code, and that imports it: 1.7 s of CPU and 80 MB in
# every rank at the worst moment. If it is not loaded, none of its code can be on a stack, so the answer is no.


class _NotLoaded(ModuleType):
    """Looks empty to the thread that dumps. Any other thread gets the real module."""

    def __init__(self, asker: int) -> None:
        super().__init__("torch._inductor")
        self._asker = asker

    def __getattr__(self, name: str) -> object:
        if threading.get_ident() == self._asker:
            raise AttributeError(name)
        return getattr(importlib.import_module("torch._inductor"), name)


@contextmanager
def without_inductor() -> Generator[None]:
    if "torch._inductor" in sys.modules:
        yield
        return
    names: dict[str, object] = torch.__dict__
    placed = names["_inductor"] = _NotLoaded(threading.get_ident())
    try:
        yield
    finally:
        if names.get("_inductor") is placed:  # unless it was imported meanwhile
            del names["_inductor"]


# ---------------------------------------------------------------------------------------------------------------------
# Gives the memory that a dump took back to the system.
#
# Torch builds a dump from small pieces, 5 kB per recorded call, and frees them at once; glibc keeps those pages for any
# thread but the main one, 11 MB with a ring buffer of 2,000. A guard that reads every few seconds need not hold them.

_TRIM: Final[Any] = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""None if the C library is not glibc."""


def give_back() -> None:
    """One to four milliseconds, without the GIL."""
    if _TRIM is not None:
        _TRIM(0)


# ---------------------------------------------------------------------------------------------------------------------
# The stacks of all threads of this process, in the format of `py-spy dump`, which the engine reads.

_DEPTH: Final = 100


def dump_stacks(own_thread: int) -> str:
    """All threads but forkpoint's own. The main thread first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != main)  # noqa: SLF001 documented for debuggers
    version = ".".join(map(str, sys.version_info[:3]))
    lines = [f"Process {os.getpid()}: {' '.join(sys.argv)[:200]}", f"Python v{version} ({sys.executable})", ""]
    for ident, frame in frames:
        name = "MainThread" if ident == main else names.get(ident, "unnamed")
        if ident != own_thread and not name.startswith("forkpoint-"):
            lines += [f'Thread {ident} (active): "{name}"', *_frames(frame), ""]
    return "\n".join(lines)


def communication_call() -> str:
    """The torch.distributed function that the main thread is in; "" if it is elsewhere.

    No recorder has gloo's send and recv: only the stack shows that a rank waits in one.
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
