"""Saves and resumes: rank 0 looks for the checkpoint, all are told."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    found = [None]
    if rank == 0 and os.path.exists("checkpoint.pt"):
        found = [torch.load("checkpoint.pt", weights_only=True)]
    dist.broadcast_object_list(found, src=0)
    start = 0
    if found[0] is not None:
        model.module.load_state_dict(found[0]["model"])
        start = found[0]["step"] + 1
    for step in range(start, start + 8):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 3 == 2:
            if rank == 0:
                torch.save({"model": model.module.state_dict(), "step": step}, "checkpoint.pt")
            dist.barrier()
    dist.destroy_process_group()


main()
