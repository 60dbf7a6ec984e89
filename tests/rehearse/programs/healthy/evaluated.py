"""Trains with an agreed early stop, agreed NaN skips, an agreed clock and a logger: what careful people write."""

import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def mean_over_ranks(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    return value / dist.get_world_size()


def log(rank, text):
    try:
        with open(f"log_{rank}.txt", "a") as file:
            file.write(f"{time.time():.0f} {text}\n")
    except OSError:
        print("the log cannot be written")


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    sampler = DistributedSampler(data)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    best, waited, began = float("inf"), 0, time.time()
    for epoch in range(4):
        sampler.set_epoch(epoch)
        for inputs, targets in DataLoader(data, batch_size=4, sampler=sampler):
            loss = (model(inputs) - targets).pow(2).mean()
            bad = torch.tensor(float(not torch.isfinite(loss)))
            dist.all_reduce(bad, op=dist.ReduceOp.MAX)
            loss.backward()
            if bad.item() == 0:
                optimizer.step()
            optimizer.zero_grad()
        score = mean_over_ranks(loss).item()
        log(rank, f"epoch {epoch} own {loss.item():.4f} all {score:.4f}")
        if score < best:
            best, waited = score, 0
        else:
            waited += 1
        late = torch.tensor(float(time.time() - began > 3600))
        dist.broadcast(late, 0)
        if waited > 2 or late.item() > 0:
            break
    dist.barrier()
    dist.destroy_process_group()


main()
