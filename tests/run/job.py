"""A small job under torchrun. What goes wrong in it, and after which timeout gloo gives up, is on the command line."""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

how, timeout_s = sys.argv[1], float(sys.argv[2])
dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
rank = dist.get_rank()


def go_wrong() -> None:
    match how:
        case "raise":
            raise ValueError("a bad batch")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sleep":
            time.sleep(600)
        case "broadcast":
            dist.broadcast(torch.ones(3), 0)


try:
    for step in range(20):
        if step == 10 and rank == 1:
            go_wrong()
        dist.all_reduce(torch.ones(10))
        sys.stdout.write(f"step {step}\n")
finally:
    dist.destroy_process_group()
