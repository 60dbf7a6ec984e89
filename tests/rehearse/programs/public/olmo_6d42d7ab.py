"""Ranks talk about a cancellation only where it is known: OLMo 6d42d7ab."""

import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


stop = {"reason": None}


def cancel(number, _frame):
    stop["reason"] = f"signal {number}"


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    signal.signal(signal.SIGTERM, cancel)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for _step in range(12):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if stop["reason"] is not None:  # here
            told = torch.ones(1)
            dist.broadcast(told, 0)
            break
    dist.barrier()
    dist.destroy_process_group()


main()
