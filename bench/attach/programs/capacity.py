"""Experts exchange tokens; a rank drops tokens over its capacity after the counts were exchanged.

Truth, noted before it ran: rank 1, metadata-mismatch, the line of `dist.all_to_all_single(received, ...)` in `dispatch` (or the line of the
slice that drops); the receivers expect more than rank 1 sends.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


class Router:
    """Sends each token to the rank of its expert."""

    def __init__(self, capacity: int, device: torch.device) -> None:
        self.capacity = capacity
        self.device = device

    def counts(self, step: int) -> torch.Tensor:
        """How many tokens this rank has for each rank; those of rank 1 pile up at step 5."""
        world, rank = dist.get_world_size(), dist.get_rank()
        crowd = 4096 if rank == 1 and step == 5 else 0
        return torch.tensor([256 + crowd] + [256] * (world - 1), device=self.device)

    def dispatch(self, step: int) -> torch.Tensor:
        """Counts first, then the tokens."""
        send = self.counts(step)
        receive = torch.empty_like(send)
        dist.all_to_all_single(receive, send)
        send = send.clamp(max=self.capacity)  # here: capacity
        tokens = torch.ones(int(send.sum()), 512, device=self.device)
        received = torch.empty(int(receive.sum()), 512, device=self.device)
        dist.all_to_all_single(received, tokens, receive.tolist(), send.tolist())  # here: capacity
        return received


def main() -> None:
    """Ten steps."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    router = Router(1024, device)
    for step in range(10):
        if step == 5:
            Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
        received = router.dispatch(step)
        total = received.sum()
        dist.all_reduce(total)
        print(f"[rank {dist.get_rank()}] step {step}: {total.item():.0f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
