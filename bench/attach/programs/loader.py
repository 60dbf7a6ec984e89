"""torch's DataLoader with a worker: one record of rank 2 is on storage that does not answer (a pipe nobody writes to)."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
FOLDER = Path(sys.argv[1])


class Records(Dataset[torch.Tensor]):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.rank == 2 and index == 13:
            (FOLDER / "record").read_bytes()  # here: loader
        return torch.full((4,), float(index))


def main() -> None:
    dist.init_process_group(BACKEND)
    rank = dist.get_rank()
    if rank == 2:
        os.mkfifo(FOLDER / "record")
    loader = DataLoader(Records(rank), batch_size=2, num_workers=1, prefetch_factor=2)
    for step, batch in enumerate(loader):  # here: loader
        if step == 5:
            (FOLDER / f"begun_{rank}").touch()
        total = batch.sum(dim=0).to(DEVICE)
        dist.all_reduce(total)
        total.sum().item()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
