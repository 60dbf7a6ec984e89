"""Early stopping on a loss of the rank's own: rank 3 has not become better for long enough, and goes to the report."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"


@dataclass
class EarlyStopping:
    patience: int
    best: float = float("inf")
    worse: int = 0

    def should_stop(self, loss: float) -> bool:
        self.worse = 0 if loss < self.best else self.worse + 1
        self.best = min(self.best, loss)
        return self.worse >= self.patience


def train_epoch(epoch: int, rank: int) -> float:
    gradient = torch.full((256,), 1.0 / (epoch + 1), device=DEVICE)
    dist.all_reduce(gradient)
    return 1.0 if rank == 3 and epoch > 2 else gradient.mean().item() / 4 - epoch


def report(rank: int, loss: float) -> None:
    losses = [torch.zeros(1, device=DEVICE) for _ in range(dist.get_world_size())]
    dist.all_gather(losses, torch.tensor([loss], device=DEVICE))  # here: early_stop
    if rank == 0:
        print("final", [one.item() for one in losses], flush=True)
    losses[0].item()  # here: early_stop


def main() -> None:
    dist.init_process_group(BACKEND)
    rank, stopping, loss = dist.get_rank(), EarlyStopping(patience=3), 0.0
    for epoch in range(20):
        if epoch == 5:
            Path(sys.argv[1], f"begun_{rank}").touch()
        loss = train_epoch(epoch, rank)
        if stopping.should_stop(loss):  # here: early_stop
            break  # here: early_stop
    report(rank, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
