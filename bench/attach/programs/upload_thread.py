"""A checkpoint is uploaded by a thread: the main thread of rank 3 joins it, and nobody reads what it sends."""

import os
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
FOLDER = Path(sys.argv[1])


def upload(rank: int, weights: list[float]) -> None:
    target = FOLDER / f"upload_{rank}"
    if rank == 3:
        os.mkfifo(target)
    target.write_text(repr(weights))  # here: upload_thread


class Checkpoint:
    def __init__(self) -> None:
        self.uploader: threading.Thread | None = None

    def begin(self, rank: int, weights: list[float]) -> None:
        self.uploader = threading.Thread(target=upload, args=(rank, weights), name="upload")
        self.uploader.start()

    def finish(self) -> None:
        if self.uploader is not None:
            self.uploader.join()  # here: upload_thread


def main() -> None:
    dist.init_process_group(BACKEND)
    rank, checkpoint = dist.get_rank(), Checkpoint()
    weights = torch.ones(4, device=DEVICE)
    for step in range(9):
        dist.all_reduce(weights)
        weights /= dist.get_world_size()
        if step == 5:
            (FOLDER / f"begun_{rank}").touch()
            checkpoint.begin(rank, weights.tolist())
    checkpoint.finish()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
