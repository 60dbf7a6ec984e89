"""What a controller costs on this machine: start, a call, a call with everything compared, stop.

python examples/controller_cost.py [RANKS]
"""
# ruff: noqa: INP001, T201 - a script that prints

import os
import sys
import time
from statistics import median

import torch
import torch.distributed as dist

from forkpoint.controller import Controller

CALLS = 300


class Trainer:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.value = torch.ones(4)

    def nothing(self) -> None:
        pass

    def reduce(self) -> None:
        dist.all_reduce(self.value)

    def fill_recorder(self) -> None:
        for _ in range(2000):
            dist.all_reduce(self.value)


def time_calls(job: Controller, method: str, calls: int = CALLS) -> float:
    """The median, in milliseconds."""
    taken: list[float] = []
    for _ in range(calls):
        began = time.perf_counter()
        job.run(method)
        taken.append(1000 * (time.perf_counter() - began))
    return median(taken)


def measure(ranks: int, *, every_call: bool) -> None:
    began = time.perf_counter()
    with Controller(ranks, Trainer, every_call=every_call) as job:
        print(f"{ranks} ranks, every_call={every_call}: started in {time.perf_counter() - began:.1f} s")
        print(
            f"  an empty call {time_calls(job, 'nothing'):.1f} ms, with one all_reduce {time_calls(job, 'reduce'):.1f} ms"
        )
        job.run("fill_recorder")
        print(f"  the same with a full recorder {time_calls(job, 'reduce', 50):.1f} ms")
        began = time.perf_counter()
    print(f"  stopped in {time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for every_call in (False, True):
        measure(int(sys.argv[1]) if len(sys.argv) > 1 else 4, every_call=every_call)
    print(f"load of this machine in the last minute: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
