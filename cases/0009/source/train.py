"""Sharded weights: gather before use, scatter the gradients after it."""
import os
import torch
import torch.distributed as dist
from data import TokenFiles
from setup import start


def iteration(shard, tokens, world):
    full = torch.empty(shard.numel() * world, device=shard.device)
    dist.all_gather_into_tensor(full, shard)
    grad = torch.sin(full) * tokens.float().mean()
    mine = torch.empty_like(shard)
    dist.reduce_scatter_tensor(mine, grad)
    shard.sub_(mine, alpha=1e-4)
    return mine.norm()


def main():
    rank, world, device, log = start()
    shard = torch.linspace(0, 1, 8192, device=device) + rank
    files = TokenFiles(rank, world)
    for epoch in range(3):
        for tokens in files:
            norm = iteration(shard, tokens.to(device), world)
        log.info("epoch %d gradient norm %.4f", epoch, norm.item())
    total = norm.reshape(1)
    dist.all_reduce(total)
    log.info("sum of norms %.4f", total.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
