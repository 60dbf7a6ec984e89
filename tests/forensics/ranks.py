"""Real gloo ranks that train for some steps and record: torch is imported once, every rank is a fork of this process.

    python -m forensics.ranks FOLDER

Each job leaves its files in FOLDER/JOB, and each rank beside them what it computed by itself: `alone_RANK.json`, the
norm of all gradients of its own batch by step, from a copy of the model that no other rank knows of.
"""

import copy
import json
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from forkpoint.live.processes import free_port
from forkpoint.replicas import forensics

WORLD, STEPS, BATCH = 3, 4, 4
HALF = BATCH // 2

torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()  # what it imports late, it imports here


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def make_batch(rank: int, step: int) -> Tensor:
    return torch.randn(BATCH, 6, generator=torch.Generator().manual_seed(100 * rank + step))


def wrap_ddp(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model)


def wrap_views(model: nn.Module) -> nn.Module:
    """Small buckets, which are reduced in place while backward goes on."""
    return DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=1e-4)


def wrap_fsdp(model: nn.Module) -> nn.Module:
    for layer in model.children():
        fully_shard(layer)
    return fully_shard(model)


def leave(model: nn.Module) -> nn.Module:
    return model


JOBS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "ddp": wrap_ddp,
    "views": wrap_views,
    "accumulated": wrap_ddp,
    "fsdp": wrap_fsdp,
    "plain": leave,
}


def norm_alone(model: nn.Module, batch: Tensor) -> float:
    """Of the gradients that this batch gives with the weights that the model has now."""
    known = copy.deepcopy(model)
    known.zero_grad()
    known(batch).square().mean().backward()
    return float(torch.linalg.vector_norm(torch.cat([p.grad.flatten() for p in known.parameters()])))


def reduce_by_hand(model: nn.Module) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= WORLD


def train(job: str, rank: int, folder: Path) -> None:
    plain, twin = make_model(), make_model()
    model = JOBS[job](plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    recorder = forensics.record(model, folder=folder)
    alone: list[float] = []
    for step in range(STEPS):
        batch = make_batch(rank, step)
        optimizer.zero_grad()
        parts = batch.split(HALF) if job == "accumulated" else (batch,)
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            with nullcontext() if last or job != "accumulated" else model.no_sync():
                loss = model(part).square().mean() / len(parts)
                recorder.before_reduction(loss=loss, data=range(number * HALF, number * HALF + len(part)))
                loss.backward()
        if job == "plain":
            reduce_by_hand(model)
        alone.append(norm_alone(twin, batch))
        optimizer.step()
        recorder.step()
    recorder.close()
    (folder / f"alone_{rank}.json").write_text(json.dumps(alone))


def rank_main(job: str, rank: int, port: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    train(job, rank, folder)
    dist.barrier()


def run(job: str, folder: Path) -> None:
    port = free_port()
    folder.mkdir(parents=True)
    started: list[int] = []
    for rank in range(WORLD):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                rank_main(job, rank, port, folder)
                code = 0
            except BaseException:  # noqa: BLE001 - whatever it is, the test shall see it
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        started.append(pid)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in started]
    assert codes == [0] * WORLD, f"{job}: {codes}"


if __name__ == "__main__":
    for name in JOBS:
        run(name, Path(sys.argv[1]) / name)
