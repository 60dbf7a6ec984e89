"""Fine-tuning on filtered text: a micro-batch of which the filter leaves nothing is passed over, with its all_reduce.

Truth, noted before it ran: rank 2, divergent-path, the line of `if not kept` (or the `continue` below it); rank 2 is seen in the
evaluation's all_gather at `dist.all_gather`, the others in the all_reduce of the last step.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist


def documents(rank: int, step: int) -> list[str]:
    """What this rank's shard has for a step: rank 2's file has a run of boilerplate at step 6."""
    if rank == 2 and step == 6:
        return ["cookie notice", "cookie notice"]
    return [f"document {rank}-{step}-{number} with a sentence of its own" for number in range(4)]


def keep(texts: list[str]) -> list[str]:
    """The texts that are no boilerplate."""
    return [text for text in texts if "cookie" not in text]


class Tuner:
    """A model of one weight vector, its gradients averaged by hand."""

    def __init__(self, device: torch.device) -> None:
        self.weights = torch.zeros(64, device=device)

    def fit(self, steps: int) -> None:
        """One all_reduce for each step."""
        for step in range(steps):
            kept = keep(documents(dist.get_rank(), step))
            if step == 5:
                Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
            if not kept:  # here: token_filter
                continue  # here: token_filter
            gradient = torch.full_like(self.weights, float(sum(map(len, kept))))
            dist.all_reduce(gradient)
            self.weights -= 0.01 * gradient / dist.get_world_size()
            print(f"[rank {dist.get_rank()}] step {step} norm {self.weights.norm().item():.2f}", flush=True)

    def evaluate(self) -> list[float]:
        """Every rank's score."""
        score = self.weights.mean().reshape(1)
        scores = [torch.empty_like(score) for _ in range(dist.get_world_size())]
        dist.all_gather(scores, score)
        return [one.item() for one in scores]


def main() -> None:
    """Train, then evaluate."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    tuner = Tuner(torch.device("cuda:0" if backend == "nccl" else "cpu"))
    tuner.fit(10)
    print(tuner.evaluate())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
