"""What an agreement costs: microseconds per call between gloo processes of this machine.

    OMP_NUM_THREADS=1 python -m bench.consensus --ranks 2 4

A plain all-reduce of one number stands beside every function, measured in turn with it in the same processes: on a busy
machine only their ratio means something. Wall time per call on rank 0, the best round and the median; CPU time of its thread.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Self

import torch
import torch.distributed as dist

from forkpoint import consensus
from forkpoint.live.processes import free_port

CALLS = 50
ROUNDS = 30
_FLAG = torch.zeros(1)


def _plain() -> None:
    dist.all_reduce(_FLAG)


def _block() -> None:
    with consensus.agree_on_exception():
        pass


def _nothing() -> None:
    return


def _add() -> object:
    return _FLAG + 1


MEASURED: dict[str, Callable[[], object]] = {
    "dist.all_reduce": _plain,
    "any_rank": lambda: consensus.any_rank(flag=False),
    "all_ranks": lambda: consensus.all_ranks(flag=True),
    "same_on_all_ranks": lambda: consensus.same_on_all_ranks([1, 2, 3], "list"),
    "broadcast_decision": lambda: consensus.broadcast_decision(lambda: True),
    "agree_on_exception": _block,
    "rank_zero_only, an empty function": consensus.rank_zero_only(_nothing),
    "an add": _add,
}


@dataclass(frozen=True, slots=True)
class Cost:
    best_us: float
    median_us: float
    cpu_us: float

    @classmethod
    def of(cls, rounds: list[tuple[float, float]]) -> Self:
        """From (wall, CPU) seconds of rounds."""
        walls = [wall / CALLS * 1e6 for wall, _ in rounds]
        return cls(min(walls), statistics.median(walls), min(cpu for _, cpu in rounds) / CALLS * 1e6)


def measure(functions: dict[str, Callable[[], object]]) -> dict[str, Cost]:
    """Round by round through all of them, so that a disturbance meets each alike."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            taken[name].append(_time(function))
    return {name: Cost.of(rounds) for name, rounds in taken.items()}


def _time(function: Callable[[], object], calls: int = CALLS) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.thread_time()
    for _ in range(calls):
        function()
    return time.perf_counter() - wall, time.thread_time() - cpu


def _join() -> None:
    """As many batches as others have calls: it has no call to repeat, only a loop."""
    for _ in consensus.join_uneven(range(CALLS)):
        pass


def _rank_main(rank: int, world: int, port: int, out: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(world)}
    dist.init_process_group("gloo")
    costs = measure(MEASURED)
    costs["join_uneven, per batch"] = Cost.of([_time(_join, calls=1) for _ in range(ROUNDS)])
    alone = consensus.rank_zero_only(lambda: Cost.of([_time(_add) for _ in range(ROUNDS)]))()
    dist.barrier()
    if alone is not None:
        told = costs | {"an add inside rank_zero_only": alone}
        os.write(out, json.dumps({name: astuple(cost) for name, cost in told.items()}).encode())


def run(world: int) -> dict[str, Cost]:
    port = free_port()
    read, write = os.pipe()
    ranks: list[int] = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            try:
                _rank_main(rank, world, port, write)
            finally:
                os._exit(0)
        ranks.append(pid)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    for pid in ranks:
        os.waitpid(pid, 0)
    return {name: Cost(*numbers) for name, numbers in json.loads(told).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    for world in parser.parse_args().ranks:
        costs = run(world)
        plain = costs["dist.all_reduce"].best_us
        print(f"\n| {world} ranks | best us | median us | best / all_reduce | CPU us |\n|---|---|---|---|---|")
        for name, cost in costs.items():
            row = f"{cost.best_us:.0f} | {cost.median_us:.0f} | {cost.best_us / plain:.2f} | {cost.cpu_us:.0f}"
            print(f"| {name} | {row} |")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
