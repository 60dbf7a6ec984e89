"""What the guard costs inside one rank: memory, CPU of its thread, words over its store. Run by rank_cost.py.

The recorder is filled first, then calls go on for a while (the guard reads them), then nothing happens (it only polls).
"""

import json
import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

GROUPS, SECONDS = int(os.environ["GROUPS"]), float(os.environ["SECONDS"])
HAS_GUARD, TRACED = os.environ["WITH_GUARD"] == "1", os.environ.get("TRACED") == "1"
_PACE_S = 0.01
_VALUES = torch.ones(8)


class CountingStore:
    """The guard's connection, with what went through it."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.requests = self.sent = self.received = 0

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._store, name)

        def counted(*args: Any) -> Any:
            answer = asked(*args)
            self.requests += 1
            self.sent += sum(map(_size, args))
            self.received += _size(answer)
            return answer

        return counted


def _size(value: Any) -> int:
    """Of keys and values on their way; what else is said counts as a byte."""
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value) if isinstance(value, str | bytes) else 1


def private_kb() -> int:
    """Memory that this process alone has: what it costs the host."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))


def guard_cpu() -> float:
    """CPU seconds of the guard's thread up to now; 0 without one."""
    for thread in threading.enumerate():
        if thread.name == "forkpoint-guard" and thread.ident is not None:
            return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return 0.0


def call_for(seconds: float, groups: Sequence[Any]) -> None:
    """Until rank 0's clock says so."""
    until = time.monotonic() + seconds
    goes_on = torch.ones(1)
    while goes_on.item():
        for group in groups:
            dist.all_reduce(_VALUES, group=group)
        time.sleep(_PACE_S)
        goes_on.fill_(float(time.monotonic() < until))
        dist.broadcast(goes_on, 0)


def start_guard() -> CountingStore | None:
    """Imported here, so that its modules count as its memory."""
    if not HAS_GUARD:
        return None
    if TRACED:
        tracemalloc.start()
    import forkpoint.guard  # noqa: PLC0415 as said
    from forkpoint.guard import messages  # noqa: PLC0415 as said

    counted: list[CountingStore] = []

    def counting(make: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any) -> Any:
            counted.append(CountingStore(make(*args)))
            return counted[-1]

        return made

    # Where every store of a guard comes from.
    messages._connect, messages._serve = counting(messages._connect), counting(messages._serve)  # noqa: SLF001 as said
    forkpoint.guard.start()
    until = time.monotonic() + 30
    while not counted and time.monotonic() < until:
        time.sleep(0.05)
    return counted[0]


def phase(seconds: float, store: CountingStore | None, groups: Sequence[Any]) -> dict[str, float]:
    """Per second. Without groups: nothing is called."""
    before = (guard_cpu(), store.requests, store.sent, store.received) if store else (0.0, 0, 0, 0)
    began = time.monotonic()
    if groups:
        call_for(seconds, groups)
    else:
        time.sleep(seconds)
    after = (guard_cpu(), store.requests, store.sent, store.received) if store else (0.0, 0, 0, 0)
    taken = time.monotonic() - began
    names = ("cpu", "requests", "sent", "received")
    return {name: (b - a) / taken for name, a, b in zip(names, before, after, strict=True)}


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    groups = [dist.group.WORLD, *(dist.new_group() for _ in range(GROUPS - 1))]
    for number in range(2400):
        dist.all_reduce(_VALUES, group=groups[number % len(groups)])
    call_for(1.0, groups)
    before = private_kb()
    store = start_guard()
    dist.barrier()
    call_for(7.0, groups)  # until everything was read at least once
    told: dict[str, Any] = {"busy": phase(SECONDS, store, groups)}
    told["grown_kb"] = private_kb() - before
    told["traced_kb"] = tracemalloc.get_traced_memory()[0] / 1024 if TRACED else 0.0
    dist.barrier()
    time.sleep(3)  # when calls stop it reads them once more
    told["idle"] = phase(SECONDS, store, ())
    if store is not None:
        from forkpoint.guard import messages, session  # noqa: PLC0415 only where the guard runs

        thread = session.running_thread()
        told["answer_bytes"] = len(messages.encode(thread.session.side.answer())) if thread and thread.session else 0
    print(json.dumps(told), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
