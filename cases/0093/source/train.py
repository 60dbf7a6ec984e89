"""Classifier with hooks; the main process keeps the best weights."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from evaluation import Evaluator
from hooks import KeepBest, Progress


class Trainer:
    def __init__(self, model, hooks, device):
        self.model, self.hooks, self.device = model, hooks, device
        self.opt = torch.optim.SGD(model.parameters(), lr=0.05)
        self.step = self.epoch = 0
        self.last_loss = None

    def fire(self, event):
        for hook in self.hooks:
            getattr(hook, event)(self)

    def train_step(self, x, y):
        self.last_loss = nn.functional.cross_entropy(self.model(x), y)
        self.opt.zero_grad()
        self.last_loss.backward()
        self.opt.step()
        self.fire("after_step")
        self.step += 1

    def fit(self, epochs, steps):
        for self.epoch in range(epochs):
            for _ in range(steps):
                x = torch.randn(32, 24, device=self.device)
                self.train_step(x, x[:, :6].argmax(1))
            self.fire("after_epoch")


def build_hooks(rank, device):
    hooks = [Progress(every=5)]
    if rank == 0:
        hooks.append(KeepBest(Evaluator(6, batches=4, device=device)))
    return hooks


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(rank)
    model = DDP(nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 6)).to(device))
    trainer = Trainer(model, build_hooks(rank, device), device)
    trainer.fit(epochs=4, steps=12)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
