"""Segmentation-like classifier that logs a loss per source of data (DDP)."""

import argparse
import collections
import csv
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SOURCES = ("web", "books", "code")
CLASSES = 5


def write_table(path, rows, seed):
    draw = torch.Generator().manual_seed(seed)
    part = path.with_suffix(f".{os.getpid()}.tmp")
    with part.open("w", newline="") as out:
        table = csv.writer(out)
        for index in range(rows):
            values = torch.randn(8, generator=draw)
            label = int(values[:CLASSES].argmax())
            table.writerow([SOURCES[index % len(SOURCES)], label, *(f"{v:.4f}" for v in values)])
    part.rename(path)


class Table(torch.utils.data.Dataset):
    def __init__(self, path):
        with path.open(newline="") as lines:
            self.rows = list(csv.reader(lines))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        source, label, *values = self.rows[index]
        return source, int(label), torch.tensor([float(v) for v in values])


def collate(rows):
    sources, labels, values = zip(*rows, strict=True)
    return list(sources), torch.tensor(labels), torch.stack(values)


class Tracker:
    """Running means per name, averaged over ranks when they are logged."""

    def __init__(self, device):
        self.device = device
        self.sums = collections.OrderedDict()
        self.counts = collections.Counter()

    def update(self, name, value):
        self.sums[name] = self.sums.get(name, 0.0) + value
        self.counts[name] += 1

    def log(self, step):
        means = {}
        for name in sorted(self.sums):  # here
            mean = torch.tensor([self.sums[name] / self.counts[name]], device=self.device)
            dist.all_reduce(mean)
            means[name] = mean.item() / dist.get_world_size()
        self.sums.clear()
        self.counts.clear()
        if dist.get_rank() == 0:
            print(f"step {step} " + " ".join(f"{k}={v:.3f}" for k, v in means.items()), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--log-every", type=int, default=4)
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if cuda else torch.device("cpu")
    path = Path("train.csv")
    if rank == 0 and not path.exists():
        write_table(path, args.steps * args.batch * world, 5)
    dist.barrier()
    data = Table(path)
    sampler = torch.utils.data.DistributedSampler(data, shuffle=True, seed=2, drop_last=True)
    loader = torch.utils.data.DataLoader(data, args.batch, sampler=sampler, collate_fn=collate, num_workers=2)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 48), nn.Tanh(), nn.Linear(48, CLASSES)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tracker = Tracker(device)
    for step, (sources, labels, values) in enumerate(loader, 1):
        losses = nn.functional.cross_entropy(model(values.to(device)), labels.to(device), reduction="none")
        optimizer.zero_grad()
        losses.mean().backward()
        optimizer.step()
        for source, loss in zip(sources, losses.detach().tolist(), strict=True):
            tracker.update(f"loss/{source}", loss)
        if step % args.log_every == 0:
            tracker.log(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
