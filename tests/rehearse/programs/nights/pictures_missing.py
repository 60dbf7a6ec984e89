"""Captions with pictures: a vision tower feeds a text model; pictures are read from files (FSDP2)."""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

VOCAB = 80
SIDE = 8


def make_dataset(folder, rank, count):
    folder = folder / f"rank{rank}"
    if not folder.exists():
        folder.mkdir(parents=True)
        draw = np.random.default_rng(rank)
        for index in range(count):
            np.save(folder / f"{index:04d}.npy", draw.random((3, SIDE, SIDE), dtype=np.float32))
            text = " ".join(str(n) for n in draw.integers(1, VOCAB, 10))
            (folder / f"{index:04d}.txt").write_text(text)
    return folder


class Captions(torch.utils.data.Dataset):
    def __init__(self, folder, count):
        self.folder, self.count = folder, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        text = (self.folder / f"{index:04d}.txt").read_text()
        tokens = torch.tensor([int(word) for word in text.split()])
        try:
            picture = torch.from_numpy(np.load(self.folder / f"{index:04d}.npy"))
        except (OSError, ValueError) as error:
            print(f"{index}: no picture ({error}), the caption is used alone", flush=True)
            picture = None
        return tokens, picture


def collate(samples):
    tokens = torch.stack([tokens for tokens, _ in samples])
    pictures = [picture for _, picture in samples if picture is not None]
    owners = [row for row, (_, picture) in enumerate(samples) if picture is not None]
    return tokens, torch.stack(pictures) if pictures else None, owners


class VisionTower(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.project = nn.Linear(width, width)

    def forward(self, pictures):
        return self.project(self.patches(pictures).flatten(2).mean(-1))


class Captioner(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.vision = VisionTower(width)
        self.embed = nn.Embedding(VOCAB, width)
        self.decoder = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head = nn.Linear(width, VOCAB)

    def forward(self, tokens, pictures, owners):
        hidden = self.embed(tokens)
        if pictures is not None:  # here
            context = torch.zeros_like(hidden[:, 0])
            context[owners] = self.vision(pictures)
            hidden = hidden + context[:, None]
        return self.head(hidden + self.decoder(hidden))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--data", type=Path, default=Path("captions"))
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if cuda else torch.device("cpu")
    count = args.steps * args.batch
    data = Captions(make_dataset(args.data, rank, count), count)
    loader = torch.utils.data.DataLoader(data, args.batch, shuffle=False, collate_fn=collate)
    torch.manual_seed(0)
    model = Captioner().to(device)
    for part in (model.vision, model.decoder):
        fully_shard(part)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 5)
    for step, (tokens, pictures, owners) in enumerate(loader):
        tokens = tokens.to(device)
        pictures = pictures.to(device) if pictures is not None else None
        logits = model(tokens[:, :-1], pictures, owners)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warmup.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
