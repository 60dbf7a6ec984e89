"""Metrics are summed by a thread in a group of its own; on one rank the thread has died of a division by zero.

Truth, noted before it ran: rank 2, divergent-path (its thread skipped `dist.all_reduce` in `_publish`), the line of that all_reduce or of the
division in `rate`; the other ranks' threads wait in the all_reduce, and the main threads of all in `train`.
"""

import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist


class Metrics:
    """Counts of this rank, published with those of the others."""

    def __init__(self, device: torch.device) -> None:
        self.group = dist.new_group()
        self.device = device
        self.round = 0
        self.due = threading.Semaphore(0)
        self.published = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while self.due.acquire():
            self._publish()
            self.published.release()

    def rate(self) -> float:
        """Samples per accepted sample; rank 2 has accepted none in its third round."""
        accepted = 0 if dist.get_rank() == 2 and self.round == 3 else 8
        return 16 / accepted  # here: metrics_thread

    def _publish(self) -> None:
        self.round += 1
        mine = torch.tensor([self.rate()], device=self.device)
        dist.all_reduce(mine, group=self.group)  # here: metrics_thread
        if dist.get_rank() == 0:
            print(f"round {self.round}: rate {mine.item() / dist.get_world_size():.2f}", flush=True)

    def flush(self) -> None:
        """Publish, and wait until that is done unless the thread is gone."""
        self.due.release()
        while self.thread.is_alive() and not self.published.acquire(timeout=1.0):
            pass


def train(metrics: Metrics, device: torch.device) -> None:
    """Steps with a round of metrics after every fourth."""
    weights = torch.ones(256, device=device)
    for step in range(40):
        if step == 8:
            Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
        dist.all_reduce(weights)
        weights /= dist.get_world_size()
        time.sleep(0.01)
        if step % 4 == 3:
            metrics.flush()


def main() -> None:
    """Set up, train."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    train(Metrics(device), device)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
