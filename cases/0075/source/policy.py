"""A weight matrix of which every rank keeps a slice; it is gathered for each use."""
import torch
import torch.distributed as dist


class ShardedPolicy:
    def __init__(self, width, rank, world, device):
        self.width, self.world = width, world
        start = torch.linspace(-0.05, 0.05, width * width, device=device).view(width, width)
        self.shard = start.chunk(world)[rank].clone()

    def full(self):
        whole = torch.empty(self.width, self.width, device=self.shard.device)
        dist.all_gather_into_tensor(whole, self.shard)
        return whole

    def forward(self, states):
        return torch.tanh(states @ self.full())

    def learn(self, states, score):
        grad = (states * score[:, None]).T @ states
        mine = torch.empty_like(self.shard)
        dist.reduce_scatter_tensor(mine, grad)
        self.shard -= 1e-4 * mine
