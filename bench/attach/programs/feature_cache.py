"""A feature cache in a shared file under a lock: a worker that a rank left behind has inherited the lock and never gives it back.

Truth, noted before it ran: rank 1, host-stall, the line of `fcntl.flock`; the other ranks wait in `dist.all_reduce`.
"""

import fcntl
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


class FeatureCache:
    """One file for each rank; whoever writes locks it."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"features-{rank}.bin"

    def update(self, step: int) -> None:
        """Append a row under the lock."""
        with self.path.open("ab") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)  # here: feature_cache
            handle.write(step.to_bytes(4, "little"))

    def compact(self) -> subprocess.Popen[bytes]:
        """Start the compaction beside the training: it inherits the open file, and with it the lock."""
        handle = self.path.open("ab")
        fcntl.flock(handle, fcntl.LOCK_EX)
        worker = subprocess.Popen(
            ["/usr/bin/tail", "-f", "/dev/null", "--pid", str(os.getpid())], pass_fds=[handle.fileno()]
        )
        handle.close()
        return worker


def train(cache: FeatureCache, device: torch.device) -> None:
    """Ten steps; rank 1 compacts its cache, which is the largest, after the fifth."""
    loss = torch.ones(8, device=device)
    for step in range(10):
        cache.update(step)
        dist.all_reduce(loss)
        loss /= dist.get_world_size()
        print(f"[rank {dist.get_rank()}] step {step} loss {loss.mean().item():.3f}", flush=True)
        if step == 4:
            Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
        if step == 4 and dist.get_rank() == 1:
            cache.compact()


def main() -> None:
    """Set up, train."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    with tempfile.TemporaryDirectory() as folder:
        train(FeatureCache(Path(folder), dist.get_rank()), torch.device("cuda:0" if backend == "nccl" else "cpu"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
