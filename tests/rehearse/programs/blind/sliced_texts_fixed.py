"""Texts of this rank, taken in parts of a list, in as many rounds as the tokens of any rank need."""

import torch
import torch.distributed as dist
from torch import nn

PER_STEP, BUDGET = 4, 60


def texts_of(rank):
    draw = torch.Generator().manual_seed(rank)
    lengths = torch.randint(16, 20, (40,), generator=draw).tolist()
    return [torch.randint(1, 9, (length,), generator=draw).tolist() for length in lengths]


def rounds_of(texts):
    needed = torch.tensor(max(1, -(-sum(map(len, texts)) // BUDGET)))
    dist.all_reduce(needed, op=dist.ReduceOp.MAX)
    return int(needed)


def update(model, texts):
    rounds = rounds_of(texts)
    for number in range(rounds):
        model(torch.tensor(texts[number])).square().mean().backward()
        dist.all_reduce(model.weight.grad)


def main():
    dist.init_process_group("gloo")
    texts = texts_of(dist.get_rank())
    torch.manual_seed(3)
    model = nn.Embedding(9, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(10):
        optimizer.zero_grad()
        update(model, texts[step * PER_STEP : (step + 1) * PER_STEP])
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
