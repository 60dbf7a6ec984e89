"""A small job under torchrun. What goes wrong in it, and after which timeout gloo gives up, is on the command line."""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

how, timeout_s = sys.argv[1], float(sys.argv[2])
dist.init_process_group("gloo", timeout=timedelta(seconds=timeout_s))
rank = dist.get_rank()


def lose_gpu() -> None:
    """As NCCL and the kernel tell it: where the rank runs, and what became of the GPU there. Then it is gone."""
    me = os.getpid()
    sys.stdout.write(
        f"gpu-07:{me}:{me} [0] NCCL INFO ncclCommInitRank comm 0x48ee0840 rank {rank} nranks {dist.get_world_size()} "
        "cudaDev 0 nvmlDev 0 busId 1a000 commId 0xc0c3bdb52e03e3d6 - Init START\n"
    )
    sys.stdout.flush()
    kernel_log = Path(os.environ["TORCH_FR_DUMP_TEMP_FILE"]).parent.parent / "dmesg_gpu-07.txt"
    kernel_log.write_text(
        f"[ 1234.567890] NVRM: Xid (PCI:0000:1a:00): 79, pid={me}, name=python, GPU has fallen off the bus.\n"
    )
    os.kill(me, signal.SIGKILL)


def go_wrong() -> None:
    match how:
        case "raise":
            raise ValueError("a bad batch")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "lose the GPU":
            lose_gpu()
        case "sleep":
            time.sleep(600)
        case "broadcast":
            dist.broadcast(torch.ones(3), 0)


for step in range(20):
    if step == 10 and rank == 1:
        go_wrong()
    dist.all_reduce(torch.ones(10))
    sys.stdout.write(f"step {step}\n")
# Not after an exception: peers would lose their connection, and fail, before it has been said on a busy machine.
dist.destroy_process_group()
