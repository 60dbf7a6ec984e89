"""A metrics writer with a lock: its thread holds the lock and waits for an event that the main thread would set."""

import os
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"


class Metrics:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.more = threading.Event()
        self.lines: list[str] = []
        threading.Thread(target=self.flush, daemon=True, name="metrics").start()

    def flush(self) -> None:
        while True:
            self.more.wait()
            with self.lock:
                self.more.clear()
                if len(self.lines) > 6:
                    self.more.wait()
                self.lines.clear()

    def log(self, line: str) -> None:
        with self.lock:  # here: lock
            self.lines.append(line)
        if len(self.lines) > 6:
            self.more.set()


def main() -> None:
    dist.init_process_group(BACKEND)
    rank, metrics = dist.get_rank(), Metrics()
    for step in range(40):
        total = torch.ones(16, device=DEVICE)
        dist.all_reduce(total)
        if step == 7:
            Path(sys.argv[1], f"begun_{rank}").touch()
        if rank == 0:
            metrics.log(f"step {step} {total.sum().item()}")
            threading.Event().wait(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
