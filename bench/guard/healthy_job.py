"""A healthy job that looks ill: slow, uneven, checkpointing, evaluating on schedule, resuming. Run by soak.py.

Every kind of pause and of unequal call that a sound program makes is here; no rank ever leaves the common path.
"""

import os
import random
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
END = time.monotonic() + float(os.environ["SOAK_S"])
PAUSE = float(os.environ["SOAK_PAUSE_S"])  # the longest pause, below the guard's threshold
OWN = random.Random(RANK)  # differs by rank: speed, sizes of what may differ
SHARED = random.Random(7)  # equal on all ranks: decisions


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, pairs: Any) -> None:
    if SHARED.random() < 0.3:
        time.sleep(OWN.random() * 0.6)  # uneven speed
    loss = model(torch.randn(8, 32)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    dist.all_reduce(loss.detach(), group=pairs)


def exchange_tokens() -> None:
    """As in a mixture of experts: sizes differ by rank, and fit."""
    counts = torch.tensor([1 + (RANK + peer) % 3 for peer in range(WORLD)])
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    rows = torch.randn(int(counts.sum()), 4)
    out = torch.empty(int(theirs.sum()), 4)
    dist.all_to_all_single(out, rows, theirs.tolist(), counts.tolist())


def evaluate() -> None:
    time.sleep(OWN.random())
    found = [None] * WORLD
    dist.all_gather_object(found, {"rank": RANK, "words": "x" * OWN.randrange(500)})
    dist.gather(torch.tensor([float(RANK)]), [torch.zeros(1) for _ in range(WORLD)] if RANK == 0 else None, dst=0)
    best = [len(found)]
    dist.broadcast_object_list(best, src=0)


def save(model: nn.Module, folder: Path) -> None:
    if RANK == 0:
        torch.save(model.state_dict(), folder / "checkpoint.pt")
        time.sleep(PAUSE * (0.5 + 0.5 * OWN.random()))  # a slow file system; the others wait in the barrier
    dist.barrier()


def send_along() -> None:
    """Stages of a pipeline: only neighbours talk, and the recorder does not see it."""
    if RANK % 2 == 0 and RANK + 1 < WORLD:
        dist.send(torch.ones(4), RANK + 1)
    elif RANK % 2 == 1:
        time.sleep(OWN.random() * 0.5)
        dist.recv(torch.empty(4), RANK - 1)


def run(folder: Path, until: float) -> int:
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    time.sleep(OWN.random() * 2)  # a rank that starts late
    pairs = [dist.new_group([first, first + 1]) for first in range(0, WORLD - 1, 2)][RANK // 2]
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)))
    if (folder / "checkpoint.pt").exists():
        model.load_state_dict(torch.load(folder / "checkpoint.pt"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step, go_on = 0, True
    while go_on:
        step += 1
        train_step(model, optimizer, pairs)
        if step % 5 == 0:
            exchange_tokens()
            send_along()
        if step % 25 == 0:
            evaluate()
        if step % 60 == 0:
            save(model, folder)
        if step % 90 == 0:
            time.sleep(PAUSE)  # compilation, a large batch: nobody waits for anybody
        left = torch.tensor([until - time.monotonic()])
        dist.all_reduce(left, dist.ReduceOp.MIN)
        go_on = left.item() > 0
    dist.barrier()
    dist.destroy_process_group()
    return step


def main() -> None:
    folder = Path(os.environ.get("SOAK_DIR") or tempfile.gettempdir())
    rounds = int(os.environ.get("SOAK_ROUNDS", "3"))
    start = time.monotonic()
    for number in range(1, rounds + 1):  # each resumes from the last: a new process group in the same process
        steps = run(folder, start + (END - start) * number / rounds)
        print(f"rank {RANK} round {number}: {steps} steps", flush=True)
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)


main()
