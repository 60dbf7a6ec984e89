"""An extension is built by whoever comes first: rank 3 waits for the lock of a process that was killed."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer
from torch.utils.file_baton import FileBaton

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
FOLDER = Path(sys.argv[1])


def load_extension(rank: int) -> str:
    build = FOLDER / f"build_{rank}"
    build.mkdir()
    if rank == 3:
        (build / "lock").touch()  # as a process leaves it that is killed while it compiles
    baton = FileBaton(str(build / "lock"))
    if not baton.try_acquire():
        baton.wait()  # here: extension
    else:
        baton.release()
    return "fused_norm.so"


def main() -> None:
    dist.init_process_group(BACKEND)
    server = _WorkerServer("::", 0) if "DEBUG_SERVER" in os.environ else None
    rank = dist.get_rank()
    for step in range(8):
        if step == 5:
            (FOLDER / f"begun_{rank}").touch()
            load_extension(rank)  # here: extension
        values = torch.ones(16, device=DEVICE)
        dist.all_reduce(values)
        values.sum().item()
    dist.destroy_process_group()
    del server


if __name__ == "__main__":
    main()
