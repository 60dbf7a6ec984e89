"""A classifier with DistributedDataParallel: evaluates, keeps checkpoints and stops early, all by agreement."""

import logging
import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = torch.device("cuda:0" if BACKEND == "nccl" else "cpu")
STEPS, PACE = int(os.environ.get("STEPS", "40")), float(os.environ.get("PACE", "0.05"))
BATCH, EVAL_EVERY, SAVE_EVERY, PATIENCE = 16, 5, 10, 3

log = logging.getLogger("train")


class Shard:
    """The rows of this rank: every WORLD-th, as a DistributedSampler gives them."""

    def __init__(self, rows: int, seed: int) -> None:
        everything = torch.randn(rows * WORLD, 32, generator=torch.Generator().manual_seed(seed))
        self.x = everything[RANK::WORLD].to(DEVICE)
        self.y = (self.x.sum(1) > 0).long()

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        first = step * BATCH % len(self.x)
        return self.x[first : first + BATCH], self.y[first : first + BATCH]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU())
        self.label, self.rare = nn.Linear(64, 2), nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        features = self.body(x)
        return self.label(features) + self.rare(features)


def evaluate(model: nn.Module, held_out: Shard) -> float:
    """The mean error over the rows of all ranks."""
    with torch.no_grad():
        loss = cross_entropy(model(held_out.x), held_out.y, reduction="sum")
    total = torch.stack([loss, torch.tensor(float(len(held_out.x)), device=DEVICE)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def save(model: DistributedDataParallel, step: int) -> None:
    if RANK == 0:
        torch.save(model.module.state_dict(), Path(f"step-{step}.pt"))
        log.info("saved step %d", step)
    dist.barrier()


def train() -> None:
    model = DistributedDataParallel(Net().to(DEVICE))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    shard, held_out = Shard(rows=256, seed=1), Shard(rows=64, seed=2)
    best, stale = float("inf"), 0
    for step in range(STEPS):
        x, y = shard.batch(step)
        loss = cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(PACE)
        log.info("step %d loss %.4f", step, loss.item())
        if step % EVAL_EVERY == EVAL_EVERY - 1:
            error = evaluate(model, held_out)
            stale = 0 if error < best else stale + 1
            best = min(best, error)
            log.info("evaluated at step %d: error %.4f", step, error)
        if stale >= PATIENCE:
            log.info("no better for %d evaluations: done", stale)
            break
        if step % SAVE_EVERY == SAVE_EVERY - 1:
            save(model, step)
    log.info("final error %.4f", evaluate(model, held_out))


def main() -> None:
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{RANK}] %(name)s: %(message)s")
    torch.manual_seed(0)
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "600"))))
    train()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
