"""The network, sharded block by block."""
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.inner(x)


class Network(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.first = nn.Linear(24, width)
        self.blocks = nn.ModuleList([Residual(width) for _ in range(3)])
        self.last = nn.Linear(width, 24)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def build(world, device):
    net = Network().to(device)
    mesh = init_device_mesh(device.type, (world,))
    for block in net.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(net, mesh=mesh)
