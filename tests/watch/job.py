"""A real job on gloo that goes on until it is killed. What each rank does is told by files in its folder.

Ranks are forks of one process that has imported torch, which is most of what a rank costs.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _WorkerServer


def run(rank: int, folder: Path) -> None:
    end = time.monotonic() + 1500
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=3)
    server = _WorkerServer("127.0.0.1", 0)
    dist.all_reduce(torch.ones(4))
    port = folder / f"port_{rank}"
    port.with_suffix(".new").write_text(str(server.port))
    port.with_suffix(".new").rename(port)
    while time.monotonic() < end:
        while rank == 1 and (folder / "rank_1_sleeps").exists():
            time.sleep(0.05)
        if rank == 2 and (folder / "rank_2_differs").exists():
            dist.all_gather([torch.ones(4) for _ in range(3)], torch.ones(4))
        dist.all_reduce(torch.ones(4))
        time.sleep(0.05)


def rank_of_this_process() -> int:
    """As RANK says; without it, forks as often as ranks are needed, and the parent is the last one."""
    if "RANK" in os.environ:
        return int(os.environ["RANK"])
    for rank in range(2):
        if os.fork() == 0:
            return rank
    return 2


if __name__ == "__main__":
    run(rank_of_this_process(), Path(sys.argv[1]))
