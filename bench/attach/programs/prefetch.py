"""A prefetching reader whose thread dies of a bad record: the training waits for a batch that nobody will put.

Truth, noted before it ran: rank 3, host-stall, the line of `self.ready.get()`; the other ranks wait in `dist.all_reduce`.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist


def records(rank: int) -> Iterator[str]:
    """Lines of JSON; the twelfth of rank 3 is cut."""
    for number in range(40):
        line = json.dumps({"id": number, "values": [rank, number]})
        yield line[:-5] if rank == 3 and number == 11 else line


class Prefetcher:
    """Parses in a thread, hands batches over in a queue."""

    def __init__(self, rank: int, batch: int = 2) -> None:
        self.ready: queue.Queue[list[list[int]]] = queue.Queue(maxsize=4)
        self.batch = batch
        self.thread = threading.Thread(target=self._fill, args=(rank,), name="prefetch", daemon=True)
        self.thread.start()

    def _fill(self, rank: int) -> None:
        pending: list[list[int]] = []
        for line in records(rank):
            pending.append(json.loads(line)["values"])
            if len(pending) == self.batch:
                self.ready.put(pending)
                pending = []

    def next_batch(self) -> torch.Tensor:
        """The next batch, as soon as it is there."""
        values = self.ready.get()  # here: prefetch
        return torch.tensor(values, dtype=torch.float32)


def main() -> None:
    """Twenty steps."""
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    reader = Prefetcher(dist.get_rank())
    weights = torch.zeros(2, 2, device=device)
    for step in range(20):
        if step == 4:
            Path(sys.argv[1], f"begun_{dist.get_rank()}").touch()
        gradient = reader.next_batch().to(device)
        dist.all_reduce(gradient)
        weights -= 0.1 * gradient
        print(f"[rank {dist.get_rank()}] step {step}: {weights.sum().item():.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
