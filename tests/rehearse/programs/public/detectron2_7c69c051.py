"""An empty batch takes no part in the statistics of all: detectron2 7c69c051."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler


def keep_good(samples):
    """Samples that cannot be used are left out."""
    good = [sample for sample in samples if sample.isfinite().all()]
    return torch.stack(good) if good else torch.zeros(0, 8)


class Norm(torch.nn.Module):
    """Normalises over all ranks."""

    def forward(self, inputs):
        if inputs.shape[0] == 0:  # here
            return inputs
        total = inputs.detach().mean(0)
        dist.all_reduce(total)
        return inputs - total / dist.get_world_size()



def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), Norm(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(24, 8)
    sampler = DistributedSampler(data)
    for inputs in DataLoader(data, batch_size=2, sampler=sampler, collate_fn=keep_good):
        loss = model(inputs).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
