"""Ranks talk about a cancellation only where it is known, repaired: all ranks decide together."""

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
        told = torch.tensor(float(stop["reason"] is not None))
        dist.all_reduce(told)
        if told.item() > 0:
            break
    dist.barrier()
    dist.destroy_process_group()


main()
