"""A training loop written by hand: gradients by all_reduce, metrics by all_gather, a loader thread, two groups."""

import logging
import os
import queue
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = torch.device("cuda:0" if BACKEND == "nccl" else "cpu")
STEPS, PACE = int(os.environ.get("STEPS", "40")), float(os.environ.get("PACE", "0.05"))
TIMEOUT = timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "600")))
BATCH, WIDTH, REPORT_EVERY = 8, 20, 5

log = logging.getLogger("train")


class Loader(threading.Thread):
    """Prepares batches ahead of the loop; None ends them."""

    def __init__(self, batches: int) -> None:
        super().__init__(daemon=True, name="loader")
        self.batches, self.ready = batches, queue.Queue[Tensor | None](maxsize=2)

    def run(self) -> None:
        for index in range(self.batches):
            self.ready.put(self.prepare(index))
        self.ready.put(None)

    def prepare(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(13 * index + RANK)
        return torch.randn(BATCH, WIDTH, generator=generator)

    def __iter__(self) -> Iterator[Tensor]:
        while (batch := self.ready.get()) is not None:
            yield batch.to(DEVICE)


class Metrics:
    """Losses since the last report, of all ranks."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def compute(self) -> list[float]:
        mine = torch.tensor([sum(self.losses) / len(self.losses)], device=DEVICE)
        everyone = [torch.empty_like(mine) for _ in range(WORLD)]
        dist.all_gather(everyone, mine)
        self.losses.clear()
        return [round(value.item(), 4) for value in everyone]


def reduce_gradients(model: nn.Module) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad)
        parameter.grad /= WORLD


def make_groups() -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """All ranks twice: one group for counts, one for norms. new_group is called by everybody, in the same order."""
    everybody = list(range(WORLD))
    counts, norms = (dist.new_group(everybody, timeout=TIMEOUT) for _ in range(2))
    assert isinstance(counts, dist.ProcessGroup)
    assert isinstance(norms, dist.ProcessGroup)
    return counts, norms


def add_up(value: float, group: dist.ProcessGroup) -> float:
    total = torch.tensor([value], device=DEVICE)
    dist.all_reduce(total, group=group)
    return total.item()


def train() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, 32), nn.Tanh(), nn.Linear(32, WIDTH)).to(DEVICE)
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    counts, norms = make_groups()
    metrics, loader = Metrics(), Loader(STEPS)
    loader.start()
    for step, x in enumerate(loader):
        loss = (model(x) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        rows = add_up(len(x), counts)
        reduce_gradients(model)
        norm = add_up(loss.item() ** 2, norms)
        optimizer.step()
        metrics.losses.append(loss.item())
        time.sleep(PACE)
        log.info("step %d rows %d norm %.4f", step, rows, norm)
        if step % REPORT_EVERY == REPORT_EVERY - 1:
            log.info("losses of all ranks %s", metrics.compute())


def main() -> None:
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{RANK}] %(name)s: %(message)s")
    dist.init_process_group(BACKEND, timeout=TIMEOUT)
    train()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
