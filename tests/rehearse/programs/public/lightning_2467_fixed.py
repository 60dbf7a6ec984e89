"""Early stopping on each rank's own metric, repaired: all ranks decide together."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    best, patience = float("inf"), 2
    for _epoch in range(6):
        for _step in range(3):
            loss = model(torch.randn(4, 8)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            value = model.module(torch.randn(16, 8)).abs().mean()
        dist.all_reduce(value)
        metric = value.item() / dist.get_world_size()
        if metric < best * 1.5:
            best, patience = min(best, metric), 2
        else:
            patience -= 1
        if patience == 0:
            break
    dist.barrier()
    dist.destroy_process_group()


main()
