"""A tokenizer is announced in the store: rank 1 waits for a key under which nobody announces it."""

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"


def tokenizer_version(store: Store, rank: int) -> str:
    if rank == 0:
        store.set("tokenizer/v2", "ready")
    wanted = "tokenizer/v3" if rank == 1 else "tokenizer/v2"
    store.wait([wanted], timedelta(hours=1))  # here: store_wait
    return wanted


def main() -> None:
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["STORE_PORT"]), is_master=os.environ["RANK"] == "0")
    dist.init_process_group(BACKEND)
    rank = dist.get_rank()
    for step in range(8):
        if step == 6:
            Path(sys.argv[1], f"begun_{rank}").touch()
            tokenizer_version(store, rank)  # here: store_wait
        loss = torch.ones(4, device=DEVICE)
        dist.all_reduce(loss, op=dist.ReduceOp.MAX)
        loss.max().item()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
