"""Gradients of several micro batches are summed before ranks exchange them: one rank's last micro batch is missing."""

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
MICRO_BATCHES = 3


def micro_batches(step: int, rank: int) -> list[torch.Tensor]:
    tokens = torch.ones(MICRO_BATCHES, 2, 16, device=DEVICE)
    return list(tokens[: MICRO_BATCHES - 1] if (step, rank) == (4, 1) else tokens)


def main() -> None:
    dist.init_process_group(BACKEND)
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(16, 1024).to(DEVICE))
    for step in range(9):
        if step == 4:
            Path(sys.argv[1], f"begun_{rank}").touch()
        for number, batch in enumerate(micro_batches(step, rank), 1):  # here: accumulation
            last = number == MICRO_BATCHES  # here: accumulation
            with nullcontext() if last else model.no_sync():
                loss = model(batch).square().mean()
                loss.backward()
        shown = loss.detach().clone()
        dist.broadcast(shown, src=0)  # here: accumulation
        shown.item()  # here: accumulation
        model.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
