"""A rank that runs out of memory skips its batch: fairseq 6c006a34."""

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
        try:
            loss = model(torch.randn(4, 8)).pow(2).mean()  # here
            loss.backward()  # here
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            print("ran out of memory, skipping batch")
            continue
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
