"""A job that hangs in one of several ways, as jobs do: its ranks' main threads stand where the truth says.

RANK=0 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 [BACKEND=nccl] python job.py KIND FOLDER
"""

import os
import queue
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer

WHO = 2
STEPS = 6
BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"


def step(value: float = 1.0) -> None:
    total = torch.full((4,), value, device=DEVICE)
    dist.all_reduce(total)
    total.sum().item()


def evaluate() -> None:
    gathered = [torch.zeros(2, device=DEVICE) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.ones(2, device=DEVICE))
    gathered[0].sum().item()


def sleep(rank: int) -> None:
    if rank == WHO:
        time.sleep(3600)  # here: sleep
    step()


def branch(rank: int) -> None:
    if rank == WHO:
        evaluate()  # here: branch
    step()


def no_batch(rank: int) -> None:
    if rank == WHO:
        batches: queue.Queue[int] = queue.Queue()
        threading.Thread(target=time.sleep, args=(3600,), daemon=True, name="loader").start()
        batches.get()  # here: no_batch
    step()


def read(rank: int) -> None:
    if rank == WHO:
        pipe = Path(sys.argv[2]) / "pipe"
        os.mkfifo(pipe)
        pipe.read_bytes()  # here: read
    step()


def busy(rank: int) -> None:
    """A loop in Python that does not end: the rank runs, and holds the GIL most of the time."""
    if rank == WHO:
        number = 27
        while number != 0:  # here: busy
            number = number // 2 if number % 2 == 0 else 3 * number + 1  # here: busy
    step()


def order(rank: int) -> None:
    """Two groups, entered in different orders: a ring of waits."""
    one, two = (dist.new_group(list(range(dist.get_world_size()))) for _ in range(2))
    first, second = (two, one) if rank == WHO else (one, two)
    seen = torch.ones(2, device=DEVICE)
    dist.all_reduce(seen, group=first)  # here: order
    seen.sum().item()  # here: order
    dist.all_reduce(seen, group=second)


def stopped(rank: int) -> None:
    """The one who runs this sends SIGSTOP to WHO once it is here."""
    if rank == WHO:
        (Path(sys.argv[2]) / "ready").touch()
        while True:
            time.sleep(0.05)  # here: stopped
    step()


def skip(rank: int) -> None:
    """One rank leaves a loop early, and goes on to the next call of its program."""
    for number in range(STEPS):
        if rank == WHO and number == STEPS - 1:
            break
        step(number)
    dist.barrier()  # here: skip
    step()


def healthy(rank: int) -> None:
    while True:
        step(rank)
        time.sleep(0.02)


def main() -> None:
    kind = sys.argv[1]
    dist.init_process_group(BACKEND)
    server = None
    if "DEBUG_SERVER" in os.environ:
        server = _WorkerServer("::", 0)  # as torch.distributed.debug.start_debug_server, without its web page
    for _ in range(STEPS):
        step()
    (Path(sys.argv[2]) / f"begun_{os.environ['RANK']}").touch()
    globals()[kind](dist.get_rank())
    del server


if __name__ == "__main__":
    main()
