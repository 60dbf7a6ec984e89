"""DistributedDataParallel, and shards of different lengths: the last rank has no batch left and goes to save."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"


class Trainer:
    def __init__(self, folder: Path) -> None:
        self.rank, self.folder = dist.get_rank(), folder
        self.model = DistributedDataParallel(
            nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 512)).to(DEVICE)
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self, shard: list[torch.Tensor]) -> None:
        for number, images in enumerate(shard):  # here: ddp_uneven
            if number == 4:
                (self.folder / f"begun_{self.rank}").touch()
            self.optimizer.zero_grad()
            loss = self.model(images.to(DEVICE)).square().mean()
            loss.backward()
            self.optimizer.step()
            loss.item()
        self.save()  # here: ddp_uneven

    def save(self) -> None:
        (self.folder / f"begun_{self.rank}").touch()
        token = torch.ones(1, device=DEVICE)
        dist.broadcast(token, src=0)  # here: ddp_uneven
        token.item()


def main() -> None:
    dist.init_process_group(BACKEND)
    samples = torch.randn(23, 4, 8)
    Trainer(Path(sys.argv[1])).fit(list(samples[dist.get_rank() :: dist.get_world_size()]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
