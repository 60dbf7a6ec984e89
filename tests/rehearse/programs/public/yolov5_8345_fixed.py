"""Rank 0 alone decides to stop early, repaired: all ranks decide together."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    best, waited = 0.0, 0
    for _epoch in range(8):
        for _step in range(2):
            loss = model(torch.randn(4, 8)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        stop = torch.zeros(1)
        if rank == 0:
            fitness = loss.item()
            if fitness > best * 0.001:
                best, waited = max(best, fitness), 0
            else:
                waited += 1
            stop += waited > 1
        dist.broadcast(stop, 0)
        if stop.item() > 0:
            break
    dist.barrier()
    dist.destroy_process_group()


main()
