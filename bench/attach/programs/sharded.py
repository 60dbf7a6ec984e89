"""A sharded model: rank 2's loss is not finite, and it alone runs the model again to say where."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"


def explain(model: nn.Module, batch: torch.Tensor) -> None:
    with torch.no_grad():
        output = model(batch)  # here: sharded
    print("first bad row", output.isfinite().all(dim=1).tolist().index(False), flush=True)  # here: sharded


def main() -> None:
    if BACKEND == "nccl":
        torch.cuda.set_device(0)
    dist.init_process_group(BACKEND)
    rank = dist.get_rank()
    model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.ReLU()) for _ in range(3))).to(DEVICE)
    for block in model:
        fully_shard(block)
    fully_shard(model)
    for step in range(8):
        if step == 4:
            Path(sys.argv[1], f"begun_{rank}").touch()
        batch = torch.full((4, 32), float("nan") if (rank, step) == (2, 4) else 1.0, device=DEVICE)
        loss = model(batch).square().mean()
        if not loss.isfinite().item():  # here: sharded
            explain(model, batch)  # here: sharded
        total = loss.detach().clone()
        dist.all_reduce(total)
        total.item()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
