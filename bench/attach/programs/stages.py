"""A pipeline of four stages; a stage works out by itself how many micro-batches there are, and one rounds up.

Truth, noted before it ran: rank 2 (metadata of its own: it expects 4 micro-batches where 3 are sent), divergent-path, the line of
`dist.recv` in `forward` (or the line of `math.ceil`); the other ranks wait in the `dist.barrier` at the end of the step.
"""

import math
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def micro_batches(batch: int, rank: int) -> int:
    """How many micro-batches this stage cuts its batch into: by its free memory, 4 or 5 samples each."""
    size = 4 if rank == 2 else 5
    return math.ceil(batch / size)  # here: stages


class Stage:
    """One stage: receives from the one before, sends to the one after."""

    def __init__(self, device: torch.device) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.layer = torch.eye(16, device=device)

    def forward(self, batch: int) -> None:
        """All micro-batches of one batch."""
        for _ in range(micro_batches(batch, self.rank)):
            activation = torch.ones(4, 16, device=self.layer.device)
            if self.rank > 0:
                dist.recv(activation, src=self.rank - 1)  # here: stages
            activation = activation @ self.layer
            if self.rank < self.world - 1:
                dist.send(activation, dst=self.rank + 1)

    def step(self, number: int, batch: int) -> None:
        """Forward, then meet the others."""
        self.forward(batch)
        dist.barrier()
        print(f"[stage {self.rank}] batch {number} of {batch} samples done", flush=True)


def main() -> None:
    """Small batches, then a large one: of 15 samples, stage 2 makes four micro-batches and the others three."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    stage = Stage(torch.device("cuda:0" if backend == "nccl" else "cpu"))
    for number, batch in enumerate([4, 4, 4, 15, 4]):
        if number == 3:
            Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
        stage.step(number, batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
