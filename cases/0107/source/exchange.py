"""Tokens to their experts and back."""
import torch
import torch.distributed as dist


class Exchange:
    def __init__(self, placement, rank, world, device):
        self.placement, self.rank, self.world, self.device = placement, rank, world, device

    def plan(self, routed):
        counts = torch.bincount(routed, minlength=self.placement.experts)
        table = [torch.empty_like(counts, device=self.device) for _ in range(self.world)]
        dist.all_gather(table, counts.to(self.device))
        send = self.placement.by_rank(counts)
        recv = [self.placement.by_rank(row.cpu())[self.rank] for row in table]
        return send, recv

    def __call__(self, x, routed, expert):
        send, recv = self.plan(routed)
        order = torch.argsort(self.placement.owner[routed], stable=True)
        there = x.new_empty(sum(recv), x.shape[1])
        dist.all_to_all_single(there, x[order.to(x.device)].contiguous(), recv, send)
        done = expert(there)
        back = torch.empty_like(x)
        dist.all_to_all_single(back, done.detach().contiguous(), send, recv)
        return done, back
