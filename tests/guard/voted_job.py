"""Ranks that vote before every collective. What rank 2 does otherwise is in VOTED; written for forks of one process."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import forkpoint.guard
from forkpoint.guard.voting import RanksDiffer

HOW = os.environ["VOTED"]
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
odd = dist.get_rank() == 2
model = DistributedDataParallel(nn.Linear(4, 2))
try:
    with forkpoint.guard.vote(timeout_s=300 if HOW != "absent" else 15):
        for _ in range(3):
            model(torch.ones(1, 4)).sum().backward()
            dist.all_reduce(torch.ones(3))
            gathered = [torch.zeros(1) for _ in range(3)] if dist.get_rank() == 0 else None
            dist.gather(torch.zeros(1), gathered, dst=0)
        if HOW == "root":
            dist.broadcast(torch.ones(5), src=2 if odd else 0)
        elif HOW == "size":
            dist.all_reduce(torch.ones(4 if odd else 5))
        elif HOW != "absent" or not odd:
            dist.barrier()
    print("AGREED", flush=True)
except RanksDiffer as error:
    print(f"DIFFER {error}", flush=True)
sys.stdout.flush()
os._exit(0)
