"""Fine-tuning with gradual unfreezing; gradients are averaged parameter by parameter."""
import datetime
import logging
import os
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn

from unfreeze import Schedule

log = logging.getLogger("tune")


def build(device):
    torch.manual_seed(0)
    body = OrderedDict(
        embed=nn.Linear(30, 64, bias=False),
        act=nn.ReLU(),
        mixer=nn.Linear(64, 200, bias=False),
        act2=nn.ReLU(),
        narrow=nn.Linear(200, 48, bias=False),
        head=nn.Linear(48, 8, bias=False),
    )
    return nn.Sequential(body).to(device)


class Averager:
    def __init__(self, world):
        self.world = world

    def __call__(self, named):
        for _, p in named:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
            p.grad /= self.world


def broadcast_weights(model):
    for p in model.parameters():
        dist.broadcast(p.data, src=0)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    model = build(device)
    broadcast_weights(model)
    schedule = Schedule(model, {6: ["narrow", "mixer", "embed"]})
    average = Averager(world)
    gen = torch.Generator().manual_seed(rank)
    for step in range(20):
        schedule.advance(step)
        named = schedule.trainable()
        x = torch.randn(16, 30, generator=gen).to(device)
        loss = nn.functional.cross_entropy(model(x), x[:, :8].argmax(1))
        model.zero_grad()
        loss.backward()
        average(named)
        with torch.no_grad():
            for _, p in named:
                p -= 0.05 * p.grad
        if step % 3 == 0:
            log.info("step %d loss %.4f, %d parameters learn", step, loss.item(), len(named))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
