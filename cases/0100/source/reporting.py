"""The last stage knows the loss, the first one writes it down."""
import logging

import torch
import torch.distributed as dist

log = logging.getLogger("report")


def read_journal(rank):
    """Steps at which the run that was resumed had reported, as far as this node knows."""
    journals = {0: [2, 7]}
    return journals.get(rank, [])


class Reporter:
    def __init__(self, stage, every, journal):
        self.stage, self.every = stage, every
        self.replay = {step for step in journal if step > every}

    def due(self, step):
        return step % self.every == 0 or step in self.replay

    def report(self, step, loss):
        if not self.due(step):
            return
        if self.stage.last:
            dist.send(loss, dst=0)
        elif self.stage.first:
            value = torch.empty_like(loss)
            dist.recv(value, src=self.stage.world - 1)
            log.info("step %d loss %.4f", step, value.item())
