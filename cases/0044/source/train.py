"""Tensor and data parallel training with a token budget."""
import logging
import torch, torch.distributed as dist
from layout import Layout

log = logging.getLogger("budget")


class Budget:
    """Stops the run when the tokens that were paid for are used up."""

    def __init__(self, tokens):
        self.left = tokens

    def spend(self, n):
        self.left -= n
        return self.left > 0


def block(x, weight, group):
    y = x * weight
    dist.all_reduce(y, group=group)
    return torch.tanh(y)


def main():
    layout = Layout(tp=2)
    weight = torch.full((2048,), 0.5, device=layout.device)
    budget = Budget(tokens=40_000)
    per_step = 1_600 if layout.rank == 2 else 1_024  # documents of this rank are longer
    for step in range(32):
        x = torch.ones_like(weight)
        if layout.rank < 2:
            x = block(x, weight, layout.tp)  # the first replica embeds
        for _ in range(2):
            x = block(x, weight, layout.tp)
        grad = x * 1e-3
        dist.all_reduce(grad, group=layout.dp)
        weight -= grad
        if not budget.spend(per_step):
            log.info("budget used up after step %d", step)
            break
        if step % 8 == 0:
            log.info("step %d weight %.4f", step, weight.mean().item())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
