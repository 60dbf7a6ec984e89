"""Trains a small model on four CPU processes. The ranks compute; when to stop is decided once, here.

pip install 'forkpoint[monarch]' torch
python examples/controller_train.py
"""
# ruff: noqa: INP001, T201 - a script that prints

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from forkpoint.controller import Controller, StepFailed

RANKS = 4
MAX_STEPS = 200
GOOD_ENOUGH = 0.02
LEARNING_RATE = 0.05


class Trainer:
    """One per rank, made after the process group. Its methods run when the controller says so."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)))
        generator = torch.Generator().manual_seed(dist.get_rank())
        self.inputs = torch.randn(64, 8, generator=generator)
        self.targets = self.inputs[:, :1] - 0.5 * self.inputs[:, 1:2]

    def train_step(self, learning_rate: float) -> float:
        loss = nn.functional.mse_loss(self.model(self.inputs), self.targets)
        loss.backward()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.sub_(learning_rate * parameter.grad)
        self.model.zero_grad()
        return loss.item()


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # four processes share these cores
    try:
        with Controller(ranks=RANKS, trainer=Trainer, timeout_s=60) as job:
            for step in range(MAX_STEPS):
                losses = job.run("train_step", LEARNING_RATE)
                mean = sum(losses) / len(losses)
                if step % 10 == 0:
                    print(f"step {step}: loss {mean:.4f}, by rank {[round(loss, 4) for loss in losses]}")
                # A rank that stopped on its own loss would leave the others waiting. Here there is one decision.
                if mean < GOOD_ENOUGH:
                    print(f"stopped after step {step}: loss {mean:.4f}")
                    break
    except StepFailed as failed:
        print(f"action: {failed.verdict.action}\n{failed}")
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
