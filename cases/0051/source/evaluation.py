"""Held-out loss."""
import logging
import torch
import torch.distributed as dist

log = logging.getLogger("eval")


class Evaluator:
    def __init__(self, model, device):
        self.model, self.device = model, device

    @torch.no_grad()
    def local_loss(self):
        x = torch.ones(4, 32, device=self.device) * (1 + dist.get_rank())
        return (self.model(x) - x).pow(2).mean().item()

    def over_all_ranks(self):
        out = [None] * dist.get_world_size()
        dist.all_gather_object(out, self.local_loss())
        return sum(out) / len(out)

    def report(self, step):
        log.info("step %d held-out loss %.4f", step, self.over_all_ranks())
