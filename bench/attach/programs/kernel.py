"""A kernel of rank 1 does not end: the host has issued everything, and nothing after the kernel begins on that GPU."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

BACKEND = os.environ.get("BACKEND", "nccl")
ENDLESS = 1 << 62
"""Cycles of the GPU."""


def attention(scores: torch.Tensor, step: int) -> torch.Tensor:
    if (dist.get_rank(), step) == (1, 6):
        torch.cuda._sleep(ENDLESS)  # noqa: SLF001 - torch's own tests use it  # here: kernel
    return scores.softmax(dim=-1)


def main() -> None:
    torch.cuda.set_device(0)
    dist.init_process_group(BACKEND)
    rank = dist.get_rank()
    for step in range(9):
        if step == 6:
            Path(sys.argv[1], f"begun_{rank}").touch()
        scores = attention(torch.ones(64, 64, device="cuda"), step)  # here: kernel
        dist.all_reduce(scores)  # here: kernel
        scores.sum().item()  # here: kernel
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
