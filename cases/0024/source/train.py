"""Mixture of experts with a capacity per expert."""
import logging
import torch, torch.nn as nn, torch.distributed as dist
from moe import Dispatcher
from job import begin

log = logging.getLogger("moe")


def tokens(rank, step, device):
    gen = torch.Generator().manual_seed(7 * rank + step)
    x = torch.randn(64, 48, generator=gen)
    dest = torch.randint(0, 4, (64,), generator=gen)
    if rank == 2 and step == 3:
        dest[:50] = 0  # a page in one language
    return x.to(device), dest.to(device)


def main():
    rank, world, device = begin()
    torch.manual_seed(rank)
    expert = nn.Linear(48, 48).to(device)
    dispatcher = Dispatcher(world, capacity=40)
    for step in range(10):
        x, dest = tokens(rank, step, device)
        loss = dispatcher.run(x, dest, expert).pow(2).mean()
        loss.backward()
        norm = expert.weight.grad.norm().reshape(1)
        dist.all_reduce(norm)
        expert.zero_grad()
        log.info("step %d norm %.4f", step, norm.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
