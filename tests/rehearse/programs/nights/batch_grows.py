"""Contrastive training of two encoders; the batch grows as the loss comes down (DDP and an all-gather of features)."""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Towers(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.picture = nn.Sequential(nn.Linear(20, 32), nn.GELU(), nn.Linear(32, width))
        self.text = nn.Sequential(nn.Linear(12, 32), nn.GELU(), nn.Linear(32, width))
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, pictures, texts):
        left = nn.functional.normalize(self.picture(pictures), dim=-1)
        right = nn.functional.normalize(self.text(texts), dim=-1)
        return left, right, self.scale.exp()


class Curriculum:
    """More rows per step once the smoothed loss has come below the next mark."""

    def __init__(self, marks, sizes):
        self.marks, self.sizes = marks, sizes
        self.level, self.smoothed = 0, None

    def update(self, loss):
        self.smoothed = loss if self.smoothed is None else 0.8 * self.smoothed + 0.2 * loss
        if self.level < len(self.marks) and self.smoothed < self.marks[self.level]:  # here
            self.level += 1

    @property
    def rows(self):
        return self.sizes[self.level]

    def state_dict(self):
        return {"level": self.level, "smoothed": self.smoothed}


def memory_mapped(path, shape, seed):
    if not path.exists():
        part = path.with_name(f"{path.name}.{os.getpid()}.npy")
        np.save(part, np.random.default_rng(seed).standard_normal(shape, dtype=np.float32))
        part.rename(path)
    return np.load(path, mmap_mode="r")


def gather_features(features):
    gathered = [torch.empty_like(features) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, features.detach().contiguous())  # here
    gathered[dist.get_rank()] = features
    return torch.cat(gathered)


def contrastive_loss(left, right, scale):
    rows = len(left)
    labels = torch.arange(rows, device=left.device) + rows * dist.get_rank()
    to_text = scale * left @ gather_features(right).T
    to_picture = scale * right @ gather_features(left).T
    return (nn.functional.cross_entropy(to_text, labels) + nn.functional.cross_entropy(to_picture, labels)) / 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--checkpoint", type=Path, default=Path("towers.pt"))
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if cuda else torch.device("cpu")
    pictures = memory_mapped(Path("pictures.npy"), (4096, 20), 1)
    texts = memory_mapped(Path("texts.npy"), (4096, 12), 2)
    torch.manual_seed(0)
    model = DistributedDataParallel(Towers().to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    curriculum = Curriculum(marks=(2.0, 1.2), sizes=(8, 16, 32))
    order = np.random.default_rng(rank)
    for step in range(args.steps):
        chosen = np.sort(order.choice(len(pictures), curriculum.rows, replace=False))
        left, right, scale = model(torch.from_numpy(pictures[chosen]).to(device), torch.from_numpy(texts[chosen]).to(device))
        loss = contrastive_loss(left, right, scale)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        curriculum.update(loss.item())  # here
        if rank == 0:
            print(f"step {step} loss {loss.item():.3f} rows {curriculum.rows * world}", flush=True)
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "curriculum": curriculum.state_dict()}, args.checkpoint)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
