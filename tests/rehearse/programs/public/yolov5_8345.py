"""Rank 0 alone decides to stop early: YOLOv5 8345."""

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
        if rank == 0:
            fitness = loss.item()
            if fitness > best * 0.001:  # here
                best, waited = max(best, fitness), 0
            else:
                waited += 1
            if waited > 1:  # here
                break
    dist.barrier()
    dist.destroy_process_group()


main()
