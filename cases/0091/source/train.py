"""DDP with gradient accumulation; losses are averaged over the kept rows of a batch."""
import contextlib
import datetime
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from guard import LossGuard, Scaler
from records import Shard

log = logging.getLogger("train")


class Trainer:
    def __init__(self, model, shard, device, accumulate=3):
        self.model, self.shard, self.device, self.accumulate = model, shard, device, accumulate
        self.opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.scaler, self.guard = Scaler(), LossGuard(patience=5)

    def loss(self, index):
        x, kept = (t.to(self.device) for t in self.shard[index])
        per_row = self.model(x).square().mean(1)
        return (per_row * kept).sum() / kept.sum()

    def micro_step(self, index, sync):
        with contextlib.nullcontext() if sync else self.model.no_sync():
            loss = self.loss(index)
            if not self.guard.admit(loss):
                return loss.new_zeros(())
            self.scaler.scale(loss / self.accumulate).backward()
        return loss.detach()

    def update(self, number):
        total = torch.zeros((), device=self.device)
        for part in range(self.accumulate):
            last = part == self.accumulate - 1
            total += self.micro_step(number * self.accumulate + part, sync=last)
        self.scaler.step(self.opt)
        self.opt.zero_grad()
        return total / self.accumulate

    def report(self, number, loss):
        losses = [torch.empty(1, device=self.device) for _ in range(dist.get_world_size())]
        dist.all_gather(losses, loss.reshape(1))
        mean = torch.cat(losses).mean().item()
        log.info("update %d loss %.4f skipped %d", number, mean, self.guard.skipped)


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(40, 160), nn.GELU(), nn.Linear(160, 40)).to(device))
    trainer = Trainer(model, Shard(rank), device)
    for number in range(24):
        loss = trainer.update(number)
        if number % 4 == 3:
            trainer.report(number, loss)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
