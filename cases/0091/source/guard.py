"""Keeps bad losses out of the gradients."""
import logging
import torch

log = logging.getLogger("guard")


class LossGuard:
    def __init__(self, patience):
        self.patience = patience
        self.skipped = 0

    def admit(self, loss):
        if torch.isfinite(loss):
            return True
        self.skipped += 1
        if self.skipped > self.patience:
            raise RuntimeError(f"{self.skipped} bad losses")
        return False


class Scaler:
    """Loss scaling with a fixed scale, as on hardware without bfloat16."""

    def __init__(self, scale=128.0):
        self.scale_value = scale

    def scale(self, loss):
        return loss * self.scale_value

    def step(self, opt):
        for group in opt.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.div_(self.scale_value)
        opt.step()
