"""A pipeline: every rank is a stage. Activations go on by send and recv, gradients come back in one batch of both."""

import logging
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = torch.device("cuda:0" if BACKEND == "nccl" else "cpu")
STEPS, PACE = int(os.environ.get("STEPS", "30")), float(os.environ.get("PACE", "0.05"))
MICRO_BATCHES, ROWS, WIDTH, LOG_EVERY = 3, 4, 24, 5
FIRST, LAST = RANK == 0, RANK == WORLD - 1

log = logging.getLogger("train")


def micro_batch(step: int, index: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + index)
    return torch.randn(ROWS, WIDTH, generator=generator).to(DEVICE)


def receive() -> Tensor:
    """What the stage before sent."""
    x = torch.empty(ROWS, WIDTH, device=DEVICE)
    dist.recv(x, src=RANK - 1)
    return x.requires_grad_()


def forward(stage: nn.Module, step: int) -> list[tuple[Tensor, Tensor]]:
    """Inputs and outputs of all micro-batches."""
    passed: list[tuple[Tensor, Tensor]] = []
    for index in range(MICRO_BATCHES):
        x = micro_batch(step, index) if FIRST else receive()
        y = stage(x)
        if not LAST:
            dist.send(y.detach(), dst=RANK + 1)
        passed.append((x, y))
    return passed


def exchange(sent: Tensor | None, received: Tensor | None) -> None:
    """A gradient to the stage before, and the next one from the stage behind, in one batch."""
    ops: list[dist.P2POp] = []
    if sent is not None:
        ops.append(dist.P2POp(dist.isend, sent, RANK - 1))
    if received is not None:
        ops.append(dist.P2POp(dist.irecv, received, RANK + 1))
    for work in dist.batch_isend_irecv(ops) if ops else []:
        work.wait()


def backward(passed: list[tuple[Tensor, Tensor]]) -> float:
    total = 0.0
    for x, y in passed:
        if LAST:
            loss = y.pow(2).mean()
            loss.backward()
            total += loss.item()
        else:
            gradient = torch.empty_like(y)
            exchange(None, gradient)
            y.backward(gradient)
        exchange(None if FIRST else x.grad, None)
    return total / len(passed)


def train() -> None:
    torch.manual_seed(RANK)
    stage = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()).to(DEVICE)
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.05)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = backward(forward(stage, step))
        optimizer.step()
        time.sleep(PACE)
        log.info("step %d done", step)
        if step % LOG_EVERY == LOG_EVERY - 1:
            mean = torch.tensor([loss], device=DEVICE)
            dist.broadcast(mean, src=WORLD - 1)
            log.info("step %d loss %.4f", step, mean.item())


def main() -> None:
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{RANK}] %(name)s: %(message)s")
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "600"))))
    dist.barrier()
    train()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
