"""A layer whose weight is split over all ranks and put together for use."""
import torch
import torch.distributed as dist


class ShardedLinear:
    def __init__(self, rank, world, width, device):
        self.world, self.width = world, width
        gen = torch.Generator().manual_seed(rank)
        self.shard = (torch.randn(width * width // world, generator=gen) * 0.05).to(device)

    def gather(self):
        full = torch.empty(self.width * self.width, device=self.shard.device)
        dist.all_gather_into_tensor(full, self.shard)
        return full.view(self.width, self.width).requires_grad_()

    def scatter(self, grad):
        mine = torch.empty_like(self.shard)
        dist.reduce_scatter_tensor(mine, grad.contiguous().flatten())
        self.shard -= 1e-2 / self.world * mine
