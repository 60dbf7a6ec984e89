"""Predictions of all ranks, in one list."""
import torch
import torch.distributed as dist


def gather_predictions(local, world):
    parts = [torch.empty_like(local) for _ in range(world)]
    dist.all_gather(parts, local)
    return torch.cat(parts)


def batches(rank, device, rows=124, size=16):
    rows -= 4 if rank == 1 else 0
    gen = torch.Generator().manual_seed(rank)
    x = torch.randn(rows, 64, generator=gen)
    return [b.to(device) for b in x.split(size)]
