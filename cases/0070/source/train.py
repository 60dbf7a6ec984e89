"""Language-model style training: accumulate until a token budget is full, then let DDP reduce."""
import contextlib
import datetime
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from corpus import micro_batches

log = logging.getLogger("lm")
TOKENS_PER_UPDATE = 1024


class Trainer:
    def __init__(self, rank, world, device):
        self.rank, self.world, self.device = rank, world, device
        torch.manual_seed(3)
        net = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(device)
        self.model = DistributedDataParallel(net)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=3e-4)

    def epoch(self, number):
        pending, seen, updates = 0, 0, 0
        for x in micro_batches(self.rank, number):
            x = x.to(self.device)
            pending += len(x)
            full = pending >= TOKENS_PER_UPDATE
            with contextlib.nullcontext() if full else self.model.no_sync():
                loss = (self.model(x) - x).square().mean() * len(x) / TOKENS_PER_UPDATE
                loss.backward()
            if full:
                self.opt.step()
                self.opt.zero_grad()
                seen, pending, updates = seen + pending, 0, updates + 1
        return seen, updates

    def totals(self, seen):
        mine = torch.tensor([seen], device=self.device)
        everyone = torch.empty(self.world, dtype=mine.dtype, device=self.device)
        dist.all_gather_into_tensor(everyone, mine)
        return everyone.tolist()


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s r{rank} %(levelname)s %(name)s | %(message)s")
    trainer = Trainer(rank, world, device)
    for number in range(4):
        seen, updates = trainer.epoch(number)
        log.info("epoch %d finished: %d updates, %d tokens here", number, updates, seen)
        log.info("epoch %d tokens by rank %s", number, trainer.totals(seen))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
