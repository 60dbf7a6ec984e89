"""A sampler of this rank's own length that waits for nobody: SimpleTuner f5ae4af5, repaired."""

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, Sampler

BATCH = 4


class Pictures(Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        made = torch.Generator().manual_seed(index)
        return torch.randn(8, generator=made)


class AspectSampler(Sampler):
    """Batches of one aspect ratio, of the pictures that are this rank's."""

    def __init__(self, pictures, rank, world):
        mine = range(rank, len(pictures), world)
        self.buckets = {aspect: [i for i in mine if i // 40 == aspect] for aspect in range(4)}

    def __iter__(self):
        for bucket in self.buckets.values():
            waiting = []
            for index in bucket:
                waiting.append(index)
                if len(waiting) == BATCH:
                    yield waiting
                    waiting = []


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = Pictures()
    sampler = AspectSampler(data, dist.get_rank(), dist.get_world_size())
    loader = DataLoader(data, batch_sampler=sampler)
    model = torch.nn.Linear(8, 8)
    total = torch.zeros(2)
    for batch in loader:
        with torch.no_grad():
            total += torch.tensor([(model(batch) - batch).pow(2).sum(), len(batch)])
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"evaluated {total[1]:.0f} pictures, error {total[0] / total[1]:.3f}", flush=True)
    dist.destroy_process_group()


main()
