"""Where this process is in the job."""
import datetime
import logging
import os
import torch
import torch.distributed as dist


def join():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    return rank, world, torch.device("cuda:0" if backend == "nccl" else "cpu")
