"""Early stopping on each rank's own metric: Lightning 2467."""

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
            metric = model.module(torch.randn(16, 8)).abs().mean().item()
        if metric < best * 1.5:  # here
            best, patience = min(best, metric), 2
        else:
            patience -= 1
        if patience == 0:  # here
            break
    dist.barrier()
    dist.destroy_process_group()


main()
