"""Decide together what happened to one of us."""
import torch
import torch.distributed as dist


class Vote:
    def __init__(self, device):
        self.device = device

    def anyone(self, flag):
        ballot = torch.tensor([int(flag)], device=self.device)
        dist.all_reduce(ballot, op=dist.ReduceOp.MAX)
        return bool(ballot.item())


def attempt(function, kinds, vote):
    """Run a local function; its value, or None on all ranks when it failed on any."""
    value, error = None, None
    try:
        value = function()
    except kinds as caught:
        error = caught
    if vote.anyone(error is not None):
        return None, error
    return value, None
