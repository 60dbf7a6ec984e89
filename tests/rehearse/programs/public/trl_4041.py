"""A return where this rank has no token: TRL 4041."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def entropy_mask(entropies, mask):
    """Which tokens have a high entropy, by a threshold over all ranks."""
    if mask.sum().item() == 0:  # here
        return torch.zeros_like(entropies)
    chosen = entropies[mask].mean()
    gathered = [torch.zeros(()) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, chosen)
    return entropies > torch.stack(gathered).mean()



def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    for _step in range(8):
        mask = torch.rand(16) > 0.4
        weights = entropy_mask(torch.rand(16), mask)
        loss = (model(torch.randn(16, 8)).squeeze(1) * weights).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
