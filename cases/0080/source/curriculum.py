"""Chooses what to learn from next: the usual batch, or the harder half of a large one."""
import logging

import torch

log = logging.getLogger("curriculum")


class Curriculum:
    def __init__(self, rank, device):
        self.rank, self.device = rank, device
        self.gen = torch.Generator().manual_seed(60 + rank)

    def read(self, step):
        rows = 16
        if (self.rank, step) == (3, 5):
            rows = 32  # two shards were merged into this file
        return torch.randn(rows, 24, generator=self.gen).to(self.device)

    def pick(self, step, net):
        x = self.read(step)
        if len(x) <= 16:
            return x
        log.info("step %d: ranking %d candidates", step, len(x))
        with torch.no_grad():
            error = (net(x) - x).square().mean(1)
        return x[error.argsort(descending=True)[:16]]
