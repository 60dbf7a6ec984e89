"""Keys and values go around a ring of ranks: rank 2 has only padding left, and neither sends nor receives."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"


class Ring:
    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def pass_on(self, keys: torch.Tensor) -> torch.Tensor:
        received = torch.empty_like(keys)
        sending = dist.P2POp(dist.isend, keys, (self.rank + 1) % self.size)
        receiving = dist.P2POp(dist.irecv, received, (self.rank - 1) % self.size)
        for work in dist.batch_isend_irecv([sending, receiving]):
            work.wait()  # here: ring
        return received

    def attend(self, keys: torch.Tensor) -> torch.Tensor:
        seen = keys.clone()
        for _ in range(self.size - 1):
            if keys.abs().sum().item() == 0:  # here: ring
                break  # here: ring
            keys = self.pass_on(keys)  # here: ring
            seen += keys
        return seen


def main() -> None:
    dist.init_process_group(BACKEND)
    ring = Ring()
    dist.barrier()
    for step in range(7):
        if step == 4:
            Path(sys.argv[1], f"begun_{ring.rank}").touch()
        padding = (ring.rank, step) == (2, 4)
        seen = ring.attend(torch.full((32,), 0.0 if padding else 1.0, device=DEVICE))
        dist.all_reduce(seen)  # here: ring
        seen.sum().item()  # here: ring
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
