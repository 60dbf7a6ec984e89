"""A rank that runs out of memory skips its batch, repaired: all ranks decide together."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for _step in range(10):
        optimizer.zero_grad()
        failed = torch.zeros(1)
        try:
            with model.no_sync():
                loss = model(torch.randn(4, 8)).pow(2).mean()
                loss.backward()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            failed += 1
        dist.all_reduce(failed)
        if failed.item() > 0:
            continue
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
