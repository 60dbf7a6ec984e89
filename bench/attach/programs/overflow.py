"""Mixed precision by hand: a rank whose own gradients overflow halves its scale and begins the step again, without the others.

Truth, noted before it ran: rank 2, divergent-path, the line of `if not torch.isfinite(...)` (or the `return` below it); rank 2 is in the
broadcast of the next step's learning rate, the others in the all_reduce of the norm in `update`.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


class Optimizer:
    """Clips by the norm over all ranks."""

    def __init__(self, device: torch.device) -> None:
        self.weights = torch.ones(4_000_000, device=device)
        self.scale = 1024.0

    def update(self, gradient: torch.Tensor) -> bool:
        """One update; false where this step's gradients are of no use."""
        if not torch.isfinite(gradient).all():  # here: overflow
            self.scale /= 2
            return False  # here: overflow
        square = (gradient / self.scale).pow(2)
        dist.all_reduce(square)
        norm = square.sum().sqrt()
        self.weights -= 0.1 * gradient / self.scale / norm
        return True


def rate(step: int, device: torch.device) -> float:
    """The learning rate, as rank 0 has it."""
    value = torch.tensor([0.1 / (1 + step)], device=device)
    dist.broadcast(value, src=0)
    return value.item()


def main() -> None:
    """Steps until twenty were good; rank 2 overflows at step 8."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    optimizer = Optimizer(device)
    for step in range(20):
        if step == 8:
            Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
        value = rate(step, device)
        gradient = torch.full_like(optimizer.weights, optimizer.scale * value)
        if dist.get_rank() == 2 and step == 8:
            gradient[7] = float("inf")
        good = optimizer.update(gradient)
        print(f"[rank {dist.get_rank()}] step {step} {'updated' if good else 'skipped: overflow'}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
