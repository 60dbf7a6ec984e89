"""When the first ranks run out of data, those that are left go on in a group of their own; a rank counts a batch that only it knows of.

Truth, noted before it ran: rank 3, divergent-path, the line of `counts[...] +=` (or of the `dist.new_group`, or of the all_reduce in that group,
in which rank 3 waits for members that do not come); ranks 0-2 are in the `dist.all_reduce` of `finish`.
(A first version hung where torch 2.13 no longer does: making a group does not need the ranks outside it.)
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer


class Trainer:
    """Trains until the data ends, rank by rank."""

    def __init__(self, device: torch.device) -> None:
        self.weights = torch.ones(64, device=device)
        self.left = 30 if dist.get_rank() != 3 else 18
        self.prefetched = 0 if dist.get_rank() != 3 else 1

    def together(self, steps: int) -> None:
        """Steps in which all ranks have data."""
        for _ in range(steps):
            dist.all_reduce(self.weights)
            self.weights /= dist.get_world_size()
            self.left -= 1

    def remaining(self) -> list[int]:
        """The ranks that still have data."""
        left = torch.tensor([self.left], device=self.weights.device)
        everyone = [torch.empty_like(left) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, left)
        counts = [int(count.item()) for count in everyone]
        counts[dist.get_rank()] += self.prefetched  # here: elastic_group
        return [rank for rank, count in enumerate(counts) if count > 0]

    def rest(self, busy: list[int]) -> None:
        """Six more steps, by those that have data."""
        if dist.get_rank() in busy:
            group = dist.new_group(busy)  # here: elastic_group
            for _ in range(6):
                dist.all_reduce(self.weights, group=group)  # here: elastic_group
                self.weights /= len(busy)

    def finish(self) -> float:
        """The same weights everywhere."""
        dist.all_reduce(self.weights)
        return self.weights.mean().item()


def main() -> None:
    """All together, then the rest, then the end."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    server = _WorkerServer("::", 0) if "DEBUG_SERVER" in os.environ else None  # as start_debug_server, without its page
    trainer = Trainer(torch.device("cuda:0" if backend == "nccl" else "cpu"))
    trainer.together(18)
    Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
    busy = trainer.remaining()
    print(f"[rank {dist.get_rank()}] ranks with data: {busy}", flush=True)
    trainer.rest(busy)
    print(f"[rank {dist.get_rank()}] mean {trainer.finish():.3f}", flush=True)
    dist.destroy_process_group()
    del server


if __name__ == "__main__":
    main()
