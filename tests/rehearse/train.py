"""A job with two mistakes that show only on a bad day: a batch that one rank skips, and data that one rank has fewer of."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def decode(batch):
    return batch[0], batch[1]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    loader = DataLoader(TensorDataset(torch.randn(24, 8), torch.randn(24, 1)), batch_size=4)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for batch in loader:
        try:
            inputs, targets = decode(batch)
        except ValueError:
            continue
        loss = ((model(inputs) - targets) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    Path(f"done_{dist.get_rank()}").write_text("done")
    dist.destroy_process_group()


main()
