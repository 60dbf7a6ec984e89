"""A barrier only where this rank's last save is done: OLMo-core 57."""

from concurrent.futures import ThreadPoolExecutor
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def save(state, path):
    with open(path, "wb") as file:
        torch.save(state, file)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    pool = ThreadPoolExecutor(1)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for step in range(10):
        saving = pool.submit(save, {"step": step}, f"rank_{rank}.pt")
        loss = model(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.5)
        if saving.done():  # here
            dist.barrier()
    dist.barrier()
    dist.destroy_process_group()


main()
