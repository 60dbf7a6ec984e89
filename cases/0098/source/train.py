"""Recommender trained in rounds on the clicks of each region; stops when held-out error no longer falls."""
import datetime
import logging
import os

import torch
import torch.distributed as dist

from stopping import Plateau, RunState

log = logging.getLogger("rec")


class Region:
    """Clicks of one region: rows, and how well they follow the common taste."""

    def __init__(self, number, device):
        self.gen = torch.Generator().manual_seed(number)
        self.taste = torch.linspace(-1, 1, 20)
        if number == 2:
            self.taste[:4] *= -1  # opened last month, another catalogue
        self.device = device

    def rows(self, n):
        x = torch.randn(n, 20, generator=self.gen)
        y = x @ self.taste + 0.05 * torch.randn(n, generator=self.gen)
        return x.to(self.device), y.to(self.device)


class Learner:
    def __init__(self, region, device, world):
        self.region, self.world = region, world
        self.w = torch.zeros(20, device=device)
        self.held_out = region.rows(400)

    def step(self):
        x, y = self.region.rows(32)
        grad = 2 * x.T @ (x @ self.w - y) / len(y)
        dist.all_reduce(grad)
        self.w -= 0.01 / self.world * grad

    def error(self):
        x, y = self.held_out
        return (x @ self.w - y).square().mean().item()

    def round(self, steps=5):
        for _ in range(steps):
            self.step()
        return self.error()


def final_table(learner, device, rank, world):
    mine = torch.tensor([learner.error(), float(rank)], device=device)
    table = torch.empty(2 * world, device=device)
    dist.all_gather_into_tensor(table, mine)
    return table.view(world, 2).tolist()


def run(learner, state):
    while not state.finished:
        error = learner.round()
        state.close_round(error)
        log.info("round %d error %.4f", state.round, error)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    learner = Learner(Region(rank, device), device, world)
    run(learner, RunState(max_rounds=14, plateau=Plateau(patience=2, margin=0.05)))
    for error, number in final_table(learner, device, rank, world):
        log.info("region %d error %.4f", number, error)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
