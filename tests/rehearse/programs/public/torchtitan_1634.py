"""Validation until the data set ends: torchtitan 1634."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Packed(IterableDataset):
    """Samples of this rank's shard, packed: how many batches they fill is the rank's own."""

    def __iter__(self):
        for _ in range(12):
            yield torch.randn(8), torch.randn(1)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    total = torch.zeros(1)
    with torch.no_grad():
        for inputs, targets in DataLoader(Packed(), batch_size=3):  # here
            loss = ((model.module(inputs) - targets) ** 2).mean().reshape(1)
            dist.all_reduce(loss)
            total += loss
    dist.broadcast(total, 0)
    dist.barrier()
    dist.destroy_process_group()


main()
