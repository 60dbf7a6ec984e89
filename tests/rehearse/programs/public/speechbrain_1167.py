"""A checkpoint every few minutes by each rank's own clock: SpeechBrain 1167."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    last = time.time()
    for step in range(10):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.time() - last > 15 * 60:  # here
            last = time.time()
            if rank == 0:
                torch.save(model.module.state_dict(), "latest.pt")
            dist.barrier()
    dist.barrier()
    dist.destroy_process_group()


main()
