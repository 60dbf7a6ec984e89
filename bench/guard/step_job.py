"""A small DistributedDataParallel loop, in blocks: the guard works in every other one. Run by step_time.py.

One set of processes carries both kinds of blocks, so whatever else the machine does meets both alike. The guard is started
once and is made to look only in its own blocks. A block is as long as the time between two reads of a full recorder, so
that each of the guard's holds one.
"""

import json
import os
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import forkpoint.guard
from forkpoint.guard.session import Session

BLOCK_S, PAIRS = float(os.environ["BLOCK_S"]), int(os.environ["PAIRS"])
HAS_GUARD = os.environ["WITH_GUARD"] == "1"
BY_HAND = os.environ.get("BY_HAND") == "1"
"""The same without DistributedDataParallel, which with TORCH_DISTRIBUTED_DEBUG=DETAIL crashes in torch 2.13 on a CPU."""

_is_on = threading.Event()
_look = Session.look


def look_in_own_blocks(self: Session) -> None:
    if _is_on.is_set():
        _look(self)


def make_model() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(1)
    layers = [layer for _ in range(4) for layer in (nn.Linear(256, 256), nn.ReLU())]
    model: nn.Module = nn.Sequential(*layers, nn.Linear(256, 10))
    if not BY_HAND:  # several buckets, as a real model has: each is one all_reduce of the C++ reducer
        model = DistributedDataParallel(model, bucket_cap_mb=0.3)
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def reduce_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None and parameter.dim() > 1:
            dist.all_reduce(parameter.grad)


def run_steps(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> tuple[float, float]:
    """Seconds and CPU seconds per step."""
    x, y = torch.randn(64, 256), torch.randint(0, 10, (64,))
    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if BY_HAND:
            reduce_gradients(model)
        optimizer.step()
    dist.barrier()
    return (time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps


def main() -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    model, optimizer = make_model()
    run_steps(model, optimizer, 30)
    agreed = torch.tensor([BLOCK_S / run_steps(model, optimizer, 60)[0]])
    dist.broadcast(agreed, 0)
    steps = max(int(agreed.item()), 10)
    if HAS_GUARD:
        _is_on.set()
        Session.look = look_in_own_blocks
        forkpoint.guard.start()
        run_steps(model, optimizer, 4 * steps)  # its first look reads the whole recorder
    blocks: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for number in range(2 * PAIRS):
        is_on = HAS_GUARD and number % 4 in (1, 2)  # off on on off: what drifts cancels out
        (_is_on.set if is_on else _is_on.clear)()
        blocks[is_on].append(run_steps(model, optimizer, steps))
    blind = forkpoint.guard.status().blind if HAS_GUARD else ""
    print(json.dumps({"guarded": blocks[True], "plain": blocks[False], "blind": blind}), flush=True)
    dist.destroy_process_group()


main()
