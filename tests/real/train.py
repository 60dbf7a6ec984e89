"""A job on gloo for Slurm. The first word says what rank 1 does in step 5; `once`: only before Slurm has requeued the job."""

import os
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

how, once = sys.argv[1], "once" in sys.argv[2:]
again = int(os.environ.get("SLURM_RESTART_COUNT", "0")) > 0
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", timeout=timedelta(seconds=600))
for step in range(10):
    if step == 5 and rank == 1 and not (once and again):
        if how == "raise":
            raise ValueError("a bad batch")
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(10))
    sys.stdout.write(f"step {step}\n")
    sys.stdout.flush()
dist.destroy_process_group()
