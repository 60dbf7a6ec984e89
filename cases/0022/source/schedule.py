"""1F1B: warm-up forwards, then one forward and one backward in turn, then the rest of the backwards."""
import torch
import torch.distributed as dist
from torch.distributed import P2POp, batch_isend_irecv


class OneForwardOneBackward:
    def __init__(self, stage, rank, world, shape, device):
        self.stage, self.rank, self.world, self.shape, self.device = stage, rank, world, shape, device
        self.first, self.last = rank == 0, rank == world - 1
        self.waiting = []

    def transfer(self, send=None, to=None, recv_from=None):
        ops, got = [], None
        if send is not None and 0 <= to < self.world:
            ops.append(P2POp(dist.isend, send.detach().contiguous(), to))
        if recv_from is not None and 0 <= recv_from < self.world:
            got = torch.empty(self.shape, device=self.device)
            ops.append(P2POp(dist.irecv, got, recv_from))
        for work in batch_isend_irecv(ops) if ops else []:
            work.wait()
        return got

    def forward(self):
        x = torch.randn(self.shape, device=self.device) if self.first else self.transfer(recv_from=self.rank - 1)
        x.requires_grad_()
        y = self.stage.forward(x)
        self.waiting.append((x, y))
        return y

    def backward(self, grad):
        x, y = self.waiting.pop(0)
        grad = self.stage.backward(x, y, grad)
        if grad is not None:
            self.transfer(send=grad, to=self.rank - 1)

    def run(self, micro_batches):
        warm_up = min(self.world - self.rank - 1, micro_batches)
        for _ in range(warm_up):
            self.transfer(send=self.forward(), to=self.rank + 1)
        for _ in range(micro_batches - warm_up):
            y = self.forward()
            self.backward(None if self.last else self.transfer(y, self.rank + 1, self.rank + 1))
        for _ in range(warm_up):
            self.backward(self.transfer(recv_from=self.rank + 1))
