"""Batches are gathered as if all had the same size, repaired: all ranks decide together."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    data = TensorDataset(torch.randn(24, 8), torch.randn(24, 1))
    sampler = DistributedSampler(data)
    for inputs, targets in DataLoader(data, batch_size=4, sampler=sampler):
        outputs = model(inputs)
        loss = (outputs - targets).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        padded = torch.zeros(4, 1)
        padded[: len(outputs)] = outputs.detach()
        everybody = [torch.zeros(4, 1) for _ in range(dist.get_world_size())]
        dist.all_gather(everybody, padded)
    dist.barrier()
    dist.destroy_process_group()


main()
