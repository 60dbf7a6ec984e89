"""An auxiliary loss is added at random, by each rank's own dice: rank 1 throws differently once."""

import os
import random
import sys
from pathlib import Path

import torch
import torch.distributed as dist

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
BEGINS = 4


def auxiliary_loss(hidden: torch.Tensor) -> torch.Tensor:
    balance = hidden.mean().reshape(1)
    dist.all_reduce(balance, op=dist.ReduceOp.MAX)  # here: auxiliary
    return balance.cpu()  # here: auxiliary


def train_step(hidden: torch.Tensor, dice: random.Random) -> float:
    loss = hidden.square().mean().cpu()
    if dice.random() < 0.5:  # here: auxiliary
        loss += auxiliary_loss(hidden)[0]  # here: auxiliary
    gradient = hidden * loss.item()
    dist.all_reduce(gradient)
    return gradient.sum().item()


def main() -> None:
    dist.init_process_group(BACKEND)
    rank = dist.get_rank()
    dice = random.Random(7)
    for step in range(9):
        if step == BEGINS:
            Path(sys.argv[1], f"begun_{rank}").touch()
            dice = random.Random(1 if rank == 1 else 2)
        train_step(torch.full((4096,), 0.5, device=DEVICE), dice)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
