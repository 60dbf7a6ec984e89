"""Predictions of a validation epoch are gathered as if every rank had as many: Lightning 12630."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset


def gather_all_tensors(result):
    result = result.contiguous()
    gathered = [torch.zeros_like(result) for _ in range(dist.get_world_size())]
    dist.barrier()
    dist.all_gather(gathered, result)  # here
    return gathered


def validate(model, loader):
    found, wanted = [], []
    with torch.no_grad():
        for inputs, targets in loader:
            found.append(model.module(inputs).squeeze(1))
            wanted.append(targets)
    found, wanted = (torch.cat(gather_all_tensors(torch.cat(part))) for part in (found, wanted))
    return (found - wanted).abs().mean()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    inputs = torch.randn(192, 8)
    data = TensorDataset(inputs, inputs.sum(1))
    validation = DataLoader(Subset(data, range(128 + rank, 192, world)), batch_size=8)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(rank)

    for epoch in range(3):
        for _ in range(6):
            picked = torch.randint(0, 128, (16,))
            loss = (model(inputs[picked]).squeeze(1) - data.tensors[1][picked]).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        error = validate(model, validation)
        if rank == 0:
            print(f"epoch {epoch} error {error:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
