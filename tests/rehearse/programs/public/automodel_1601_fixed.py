"""A bucket is padded by going round, however small it is: NeMo Automodel 1601, repaired."""

import math

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler


class Latents(Dataset):
    """Pictures of several resolutions."""

    def __init__(self):
        self.resolutions = [256] * 38 + [512] * 30 + [768] * 14 + [1024] * 6

    def __len__(self):
        return len(self.resolutions)

    def __getitem__(self, index):
        made = torch.Generator().manual_seed(index)
        return torch.randn(8, generator=made)


class SequentialBucketSampler(Sampler):
    def __init__(self, data, num_replicas, rank, batch_size):
        self.num_replicas, self.rank, self.batch_size, self.epoch = num_replicas, rank, batch_size, 0
        self.buckets = {}
        for index, resolution in enumerate(data.resolutions):
            self.buckets.setdefault(resolution, []).append(index)

    def __iter__(self):
        made = torch.Generator().manual_seed(self.epoch)
        for bucket in self.buckets.values():
            indices = [bucket[i] for i in torch.randperm(len(bucket), generator=made).tolist()]
            total_size = math.ceil(len(indices) / self.num_replicas) * self.num_replicas
            padding_size = total_size - len(indices)
            if padding_size > 0:
                indices = indices + [indices[i % len(indices)] for i in range(padding_size)]
            indices = indices[self.rank :: self.num_replicas]
            for i in range(0, len(indices), self.batch_size):
                yield indices[i : i + self.batch_size]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = Latents()
    sampler = SequentialBucketSampler(data, world, rank, batch_size=4)
    loader = DataLoader(data, batch_sampler=sampler)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        sampler.epoch = epoch
        for batch in loader:
            loss = (model(batch) - batch).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        dist.barrier()
        if rank == 0:
            torch.save(model.module.state_dict(), f"epoch_{epoch}.pt")
    dist.barrier()
    dist.destroy_process_group()


main()
