"""Batches are gathered as if all had the same size: DeepSpeed 5117."""

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
    for inputs, targets in DataLoader(data, batch_size=4):
        outputs = model(inputs)
        loss = (outputs - targets).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        everybody = [torch.zeros(4, 1) for _ in range(dist.get_world_size())]
        dist.all_gather(everybody, outputs.detach())  # here
    dist.barrier()
    dist.destroy_process_group()


main()
