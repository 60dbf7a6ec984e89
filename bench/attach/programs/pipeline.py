"""Four stages of a pipeline: stage 1 drops a micro batch whose values overflow, and stage 2 waits for it."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
MICRO_BATCHES = 6


class Stage:
    def __init__(self, rank: int, stages: int) -> None:
        self.rank, self.last = rank, stages - 1
        self.scale = torch.full((4,), 1.0 + rank, device=DEVICE)

    def forward(self, number: int) -> None:
        if self.rank == 0:
            values = torch.full((4,), float("inf") if number == 4 else float(number), device=DEVICE)
        else:
            values = torch.empty(4, device=DEVICE)
            dist.recv(values, src=self.rank - 1)
        values = values * self.scale
        if self.rank == 1 and not values.isfinite().all().item():
            return  # here: pipeline
        if self.rank < self.last:
            dist.send(values, dst=self.rank + 1)  # here: pipeline
        values.sum().item()


def main() -> None:
    dist.init_process_group(BACKEND)
    server = None
    if "DEBUG_SERVER" in os.environ:
        server = _WorkerServer("::", 0)  # as torch.distributed.debug.start_debug_server, without its web page
    rank = dist.get_rank()
    stage = Stage(rank, dist.get_world_size())
    dist.barrier()
    for number in range(MICRO_BATCHES):
        if number == MICRO_BATCHES - 1:
            Path(sys.argv[1], f"begun_{rank}").touch()
        stage.forward(number)
    done = torch.ones(1, device=DEVICE)
    dist.all_reduce(done)  # here: pipeline
    done.item()
    dist.destroy_process_group()
    del server


if __name__ == "__main__":
    main()
