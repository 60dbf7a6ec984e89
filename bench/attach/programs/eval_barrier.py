"""Functions, and a decision of each rank's own: rank 1's loss is better than its best, so it alone evaluates."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"


def train_step(weight: torch.Tensor, data: torch.Tensor) -> float:
    loss = (weight * data).square().mean()
    gradient = 2 * weight * data.square().mean()
    dist.all_reduce(gradient)
    weight -= 0.01 * gradient
    return loss.item()


def evaluate(weight: torch.Tensor) -> None:
    dist.barrier()  # here: eval_barrier
    print("validation", weight.sum().item(), flush=True)


def main() -> None:
    dist.init_process_group(BACKEND)
    rank, best = dist.get_rank(), 0.0
    weight = torch.ones(1 << 18, device=DEVICE)
    for step in range(12):
        data = torch.full((1 << 18,), -1.0 if rank == 1 and step == 7 else 1.0 + rank, device=DEVICE)
        if step == 7:
            Path(sys.argv[1], f"begun_{rank}").touch()
        train_step(weight, data)
        if data.min().item() < best:  # here: eval_barrier
            evaluate(weight)  # here: eval_barrier
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
