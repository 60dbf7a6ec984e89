"""Hybrid sharding: weights are split within a replica, gradients are averaged between replicas."""
import logging
import torch
import torch.distributed as dist
from mesh import Mesh
from prefetch import MemoryGuard, PageCache

log = logging.getLogger("hybrid")


class HybridLinear:
    def __init__(self, mesh, width=64):
        self.mesh, self.width = mesh, width
        gen = torch.Generator().manual_seed(mesh.rank % mesh.shards)
        self.part = (torch.randn(width * width // mesh.shards, generator=gen) * 0.05).to(mesh.device)

    def full(self):
        weight = torch.empty(self.width * self.width, device=self.mesh.device)
        dist.all_gather_into_tensor(weight, self.part, group=self.mesh.shard)
        return weight.view(self.width, self.width)

    def reduce(self, grad):
        mine = torch.empty_like(self.part)
        dist.reduce_scatter_tensor(mine, grad.contiguous().flatten(), group=self.mesh.shard)
        dist.all_reduce(mine, group=self.mesh.replica)
        self.part -= 1e-2 / self.mesh.world * mine
        return mine.norm()


def train(mesh, layer, cache, steps):
    for step in range(steps):
        x = cache.load(step).to(mesh.device)
        weight = layer.full().requires_grad_()
        loss = torch.tanh(x @ weight).square().mean()
        (grad,) = torch.autograd.grad(loss, weight)
        norm = layer.reduce(grad)
        if step % 2 == 0:
            log.info("step %d loss %.4f norm %.4f", step, loss.item(), norm.item())


def main():
    mesh = Mesh()
    cache = PageCache(mesh.rank, MemoryGuard(limit_mib=128))
    train(mesh, HybridLinear(mesh), cache, steps=20)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
