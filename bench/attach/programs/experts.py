"""Two groups of two experts: a rank without tokens for the other expert leaves the exchange out."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"


class Experts:
    def __init__(self, rank: int) -> None:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        self.group, self.rank = groups[rank // 2], rank

    def tokens(self, step: int) -> torch.Tensor:
        return torch.zeros(0, device=DEVICE) if (self.rank, step) == (2, 5) else torch.ones(8, device=DEVICE)

    def forward(self, step: int) -> torch.Tensor:
        tokens = self.tokens(step)
        if tokens.numel() > 0:  # here: experts
            both = [torch.zeros(8, device=DEVICE) for _ in range(2)]
            dist.all_gather(both, tokens, group=self.group)  # here: experts
            tokens = both[0] + both[1]
        return tokens.sum().reshape(1)


def main() -> None:
    dist.init_process_group(BACKEND)
    rank = dist.get_rank()
    experts = Experts(rank)
    for step in range(9):
        if step == 5:
            Path(sys.argv[1], f"begun_{rank}").touch()
        loss = experts.forward(step)
        dist.all_reduce(loss)  # here: experts
        loss.item()  # here: experts
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
