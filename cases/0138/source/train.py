"""A classifier with DistributedDataParallel that watches its values: replicas and gradients before reduction."""

import logging
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from forkpoint import replicas
from forkpoint.replicas import forensics

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
STEPS, BATCH, ROWS, CHECK_EVERY = 50, 16, 128, 10
FOLDER = os.environ["DUMP_DIR"]

log = logging.getLogger("train")


class Shard:
    """The rows of this rank: every WORLD-th, as a DistributedSampler gives them, in the same order each epoch."""

    def __init__(self, seed: int) -> None:
        everything = torch.randn(ROWS * WORLD, 32, generator=torch.Generator().manual_seed(seed))
        self.x = everything[RANK::WORLD]
        self.y = (self.x.sum(1) > 0).long()

    def batch(self, step: int) -> tuple[Tensor, Tensor, list[int]]:
        first = step * BATCH % ROWS
        rows = slice(first, first + BATCH)
        return self.x[rows], self.y[rows], [RANK + WORLD * row for row in range(first, first + BATCH)]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 64))
        self.label = nn.Linear(64, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.label(self.body(x).relu())


def train() -> None:
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    shard = Shard(seed=1)
    watch = replicas.watch(model, optimizer, every=CHECK_EVERY, folder=FOLDER)
    recorder = forensics.record(model, folder=FOLDER)
    for step in range(1, STEPS + 1):
        x, y, rows = shard.batch(step - 1)
        if step == 36:  # rows that were written wrong, on every rank's share
            x = x * 1e4
        loss = cross_entropy(model(x), y)
        recorder.before_reduction(loss=loss, data=rows)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):  # after reduction: the same on all ranks
            optimizer.step()
        recorder.step()
        watch.step()
        log.info("step %d loss %.4f", step, loss.item())
    recorder.close()
    watch.close()


def main() -> None:
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{RANK}] %(name)s: %(message)s")
    torch.manual_seed(0)
    dist.init_process_group("gloo", timeout=timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "600"))))
    torch.manual_seed(RANK)
    train()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
