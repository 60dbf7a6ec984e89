"""Send tokens to the ranks that hold their experts, and back."""
import torch
import torch.distributed as dist


class Dispatcher:
    def __init__(self, world, capacity):
        self.world, self.capacity = world, capacity

    def counts(self, dest):
        send = torch.bincount(dest, minlength=self.world)
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send)
        return send, recv.tolist()

    def keep_within_capacity(self, dest, send):
        kept = send.clamp(max=self.capacity)
        index = [torch.nonzero(dest == e).flatten()[: int(k)] for e, k in enumerate(kept)]
        return torch.cat(index), kept.tolist()

    def run(self, x, dest, expert):
        send, recv = self.counts(dest)
        index, send = self.keep_within_capacity(dest, send)
        mine = x.new_empty(sum(recv), x.shape[1])
        dist.all_to_all_single(mine, x[index].contiguous(), recv, send)
        done = expert(mine)
        back = x.new_empty(sum(send), x.shape[1])
        dist.all_to_all_single(back, done.detach().contiguous(), send, recv)
        return done.mean() + back.mean().detach()
