"""A small job under torchrun. What goes wrong in it, and after which timeout gloo gives up, is on the command line.

`HOW without torch`: ranks that print the same and wait in the same place, but communicate with nobody.
"""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

how, alone = sys.argv[1].removesuffix(" without torch"), sys.argv[1].endswith(" without torch")
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
if not alone:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=float(sys.argv[2])))


def lose_gpu() -> None:
    """As NCCL and the kernel tell it: where the rank runs, and what became of the GPU there. Then it is gone."""
    me = os.getpid()
    sys.stdout.write(
        f"gpu-07:{me}:{me} [0] NCCL INFO ncclCommInitRank comm 0x48ee0840 rank {rank} nranks {world} "
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


def meet() -> None:
    """Without torch: until every rank has come so far, and has said so in its log. On a busy machine the launcher would end ranks that
    have not begun.
    """
    Path(f"met_{rank}").touch()
    while rank == 1 and not all(Path(f"met_{other}").exists() for other in range(world)):
        time.sleep(0.05)


for step in range(20):
    if alone and step == 10:
        meet()
    if step == 10 and rank == 1:
        go_wrong()
    if not alone:
        dist.all_reduce(torch.ones(10))
    elif step == 10:
        time.sleep(600)  # for the rank that does not come
    sys.stdout.write(f"step {step}\n")
    sys.stdout.flush()
# Not after an exception: peers would lose their connection, and fail, before it has been said on a busy machine.
dist.destroy_process_group()
