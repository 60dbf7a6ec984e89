"""A mixture of experts: one expert per rank, tokens travel by all_to_all with the counts that were exchanged before."""

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
TOKENS, WIDTH, BALANCE_EVERY = 64, 16, 5

log = logging.getLogger("train")


def tokens_of(step: int) -> Tensor:
    generator = torch.Generator().manual_seed(31 * step + RANK)
    return torch.randn(TOKENS, WIDTH, generator=generator).to(DEVICE)


def exchange(rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
    """Rows for rank r are the r-th part of `rows`; what comes back is ordered by sender."""
    out = torch.empty(sum(received), rows.shape[1], device=DEVICE)
    dist.all_to_all_single(out, rows.contiguous(), received, sent)
    return out


def exchange_counts(sent: Tensor) -> Tensor:
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    return received


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, WORLD)
        self.expert = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The answers of the experts in the order of x, and how many tokens went to each."""
        choice = self.router(x).argmax(-1)
        order = choice.argsort()
        counts = torch.bincount(choice, minlength=WORLD)
        sent, received = counts.tolist(), exchange_counts(counts).tolist()
        mine = exchange(x[order].detach(), sent, received)
        answers = exchange(self.expert(mine).detach(), received, sent)
        return torch.empty_like(answers).index_copy(0, order, answers), counts


def share_router(model: Mixture) -> None:
    """The router is a replica on every rank: its gradients are averaged."""
    for name, parameter in sorted(model.router.named_parameters()):
        assert parameter.grad is not None, name
        dist.all_reduce(parameter.grad)
        parameter.grad /= WORLD


def balance(load: Tensor) -> list[float]:
    """The share of each expert over all ranks."""
    everyone = load.float()
    dist.all_reduce(everyone)
    return (everyone / everyone.sum()).tolist()


def train() -> None:
    torch.manual_seed(0)
    model = Mixture().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        x = tokens_of(step)
        answers, load = model(x)
        weights = torch.softmax(model.router(x), -1)
        loss = (answers * weights.amax(-1, keepdim=True) - x).pow(2).mean()
        loss = loss + 1e-3 * model.expert(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        share_router(model)
        optimizer.step()
        time.sleep(PACE)
        log.info("step %d loss %.4f", step, loss.item())
        if step % BALANCE_EVERY == BALANCE_EVERY - 1:
            log.info("shares of the experts %s", [round(share, 2) for share in balance(load)])


def main() -> None:
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{RANK}] %(name)s: %(message)s")
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "600"))))
    train()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
