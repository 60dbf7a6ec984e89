"""Language model training with a guard against loss spikes."""
import datetime, logging, os
import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("lm")


class Trainer:
    def __init__(self, model, rank, world, device):
        self.model, self.rank, self.world, self.device = model, rank, world, device
        self.opt = torch.optim.SGD(model.parameters(), lr=1e-3)
        self.ema = None

    def batch(self, step):
        gen = torch.Generator().manual_seed(977 * self.rank + step)
        x = torch.randn(16, 64, generator=gen).to(self.device)
        return x * (40.0 if (self.rank, step) == (0, 6) else 1.0)

    def sync(self):
        grads = [p.grad for p in self.model.parameters()]
        flat = torch._utils._flatten_dense_tensors(grads)
        dist.all_reduce(flat, op=dist.ReduceOp.SUM)
        flat.div_(self.world)
        for g, f in zip(grads, torch._utils._unflatten_dense_tensors(flat, grads)):
            g.copy_(f)

    def forward_backward(self, x):
        self.opt.zero_grad()
        loss = self.model(x).pow(2).mean()
        loss.backward()
        self.sync()
        return loss.item()

    def step(self, step):
        x = self.batch(step)
        loss = self.forward_backward(x)
        if self.ema is not None and loss > 10 * self.ema:
            log.info("step %d: loss %.3f is far above %.3f, again with clipped inputs", step, loss, self.ema)
            loss = self.forward_backward(x.clamp(-3, 3))
        self.ema = loss if self.ema is None else 0.9 * self.ema + 0.1 * loss
        self.opt.step()


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    trainer = Trainer(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(device), rank, world, device)
    for step in range(20):
        trainer.step(step)
    log.info("ema of the loss %.4f", trainer.ema)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
