"""One collective for each name in a set: apex 18."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    counters = {"tokens": torch.ones(1), "images": torch.ones(2), "loss": torch.ones(3), "accuracy": torch.ones(4)}
    for name in set(counters):  # here
        dist.all_reduce(counters[name])  # here
    dist.barrier()
    dist.destroy_process_group()


main()
