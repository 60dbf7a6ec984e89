"""Augmentation on a stream of its own that the training waits for; on one rank its kernel does not end.

Truth, noted before it ran: rank 1, gpu-stall (on CPU ranks host-stall: the same function works without an end), the line of the
`_sleep` (or `sum`) in `augment`, or of the all_reduce in `step` whose start it holds up, where that is all a recorder can show.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

FOR_EVER = 10**15


class Augmenter:
    """Prepares the next batch beside the training."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def augment(self, batch: torch.Tensor, rounds: int) -> torch.Tensor:
        """Some rounds of work for each batch; a wrong setting makes them endless."""
        if self.stream is None:
            return batch + sum(1.0 for _ in range(rounds))  # here: side_stream
        with torch.cuda.stream(self.stream):
            torch.cuda._sleep(rounds)  # noqa: SLF001  torch has no public kernel that only takes time  # here: side_stream
            batch = batch + 1
        torch.cuda.current_stream().wait_stream(self.stream)
        return batch


def step(number: int, augmenter: Augmenter, weights: torch.Tensor) -> float:
    """One step: augment, all_reduce, the loss."""
    rounds = FOR_EVER if dist.get_rank() == 1 and number == 7 else 1000
    gradient = augmenter.augment(torch.zeros_like(weights), rounds)
    dist.all_reduce(gradient)  # here: side_stream
    weights -= gradient / dist.get_world_size()
    return weights.sum().item()


def main() -> None:
    """Twelve steps."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    augmenter, weights = Augmenter(device), torch.zeros(1024, device=device)
    for number in range(12):
        if number == 7:
            Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
        loss = step(number, augmenter, weights)
        print(f"[rank {dist.get_rank()}] step {number} loss {loss:.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
