"""Layers are dropped at random, the same ones on all ranks because all draw from the same seed (FSDP2)."""

import argparse
import json
import os
import random
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

LABELS = 4


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, hidden):
        return hidden + self.narrow(nn.functional.gelu(self.wide(self.norm(hidden))))


class Encoder(nn.Module):
    def __init__(self, width=24, depth=4, drop=0.25, seed=0):
        super().__init__()
        self.entry = nn.Linear(10, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.drop, self.dice = drop, random.Random(seed)
        self.head = nn.Linear(width, LABELS)

    def forward(self, values):
        hidden = self.entry(values)
        for layer in self.layers:
            if self.training and self.dice.random() < self.drop:
                continue
            hidden = layer(hidden)
        return self.head(hidden)


class Records(torch.utils.data.Dataset):
    """One JSON document per record; a damaged one is replaced by another, drawn at random."""

    def __init__(self, folder, count):
        self.folder, self.count = folder, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        for _ in range(10):
            try:
                record = json.loads((self.folder / f"{index}.json").read_text())
                return torch.tensor(record["values"]), record["label"]
            except (OSError, ValueError, KeyError) as error:
                print(f"record {index} cannot be read: {error}", flush=True)
                index = random.randrange(self.count)
        raise RuntimeError(f"{self.folder}: ten records in a row cannot be read")


def write_records(folder, count):
    folder.mkdir(parents=True)
    draw = random.Random(8)
    for index in range(count):
        values = [draw.gauss(0, 1) for _ in range(10)]
        document = {"values": values, "label": int(max(range(LABELS), key=values.__getitem__))}
        (folder / f"{index}.json").write_text(json.dumps(document))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=6)
    parser.add_argument("--records", type=int, default=144)
    parser.add_argument("--seed", type=int, default=11)
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if cuda else torch.device("cpu")
    folder = Path("records")
    if rank == 0 and not folder.exists():
        write_records(folder, args.records)
    dist.barrier()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    data = Records(folder, args.records)
    sampler = torch.utils.data.DistributedSampler(data, seed=args.seed)
    loader = torch.utils.data.DataLoader(data, args.batch, sampler=sampler)
    model = Encoder(seed=args.seed).to(device)
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        seen = torch.zeros(2, device=device)
        for values, labels in loader:
            logits = model(values.to(device))
            loss = nn.functional.cross_entropy(logits, labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += torch.tensor([loss.item() * len(labels), len(labels)], device=device)
        dist.all_reduce(seen)
        if rank == 0:
            print(f"epoch {epoch} loss {(seen[0] / seen[1]).item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
