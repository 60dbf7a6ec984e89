"""A batch without anchors is skipped on its rank alone, repaired: all ranks decide together."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class NoValidAnchorsError(Exception):
    pass


def pick_anchors(inputs):
    if inputs.abs().max() < 1e-6:
        raise NoValidAnchorsError
    return inputs * 2


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for _step in range(10):
        try:
            inputs, weight = pick_anchors(torch.randn(4, 8)), 1.0
        except NoValidAnchorsError:
            inputs, weight = torch.zeros(4, 8), 0.0
        loss = model(inputs).pow(2).mean() * weight
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
