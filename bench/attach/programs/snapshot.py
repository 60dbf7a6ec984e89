"""Snapshots by pairs of ranks (one pair for each node); an error of the disk is logged nowhere and the pair's barrier with it skipped.

Truth, noted before it ran: rank 0, divergent-path, the line of `suppress(OSError)` (or of the `dist.barrier` that it skipped, or of the `write`
that failed); rank 1 waits in that barrier, rank 0 and the other pair in the `dist.all_reduce` of the next step.
"""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


class Snapshots:
    """Writes the weights of a rank, with its pair."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pairs = [[first, first + 1] for first in range(0, dist.get_world_size(), 2)]
        pair = [dist.new_group(pair) for pair in pairs][dist.get_rank() // 2]
        assert isinstance(pair, dist.ProcessGroup)
        self.pair = pair

    def write(self, step: int, weights: torch.Tensor) -> None:
        """One file for each rank and step; the first rank's folder is not there at step 9."""
        name = "gone/weights" if dist.get_rank() == 0 and step == 9 else "weights"
        (self.folder / f"{name}-{step}.pt").write_bytes(weights.cpu().numpy().tobytes())

    def save(self, step: int, weights: torch.Tensor) -> None:
        """Best effort: a failed snapshot does not stop the training."""
        with contextlib.suppress(OSError):  # here: snapshot
            self.write(step, weights)  # here: snapshot
            dist.barrier(group=self.pair)  # here: snapshot


def main() -> None:
    """Forty steps, a snapshot every third."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    weights = torch.ones(128, device="cuda:0" if backend == "nccl" else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        snapshots = Snapshots(Path(folder))
        for step in range(40):
            if step == 8:
                Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
            dist.all_reduce(weights)
            weights /= dist.get_world_size()
            if step % 3 == 0:
                snapshots.save(step, weights)
                print(f"[rank {dist.get_rank()}] snapshot after step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
