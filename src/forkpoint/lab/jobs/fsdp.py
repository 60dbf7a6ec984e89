"""A small language model with FSDP2: documents of many lengths, accumulated gradients, a sample now and then."""

import logging
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
STEPS, PACE = int(os.environ.get("STEPS", "24")), float(os.environ.get("PACE", "0.05"))
VOCABULARY, ACCUMULATE, NORM_EVERY, SAMPLE_EVERY = 50, 2, 4, 6

log = logging.getLogger("train")


class TransformerBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.mix = nn.LayerNorm(width), nn.Sequential(nn.Linear(width, 2 * width), nn.GELU())
        self.out = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.out(self.mix(self.norm(x)))


class SmallTransformer(nn.Module):
    def __init__(self, width: int = 32, layers: int = 3) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(TransformerBlock(width) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def sharded() -> SmallTransformer:
    mesh = init_device_mesh(DEVICE, (WORLD,))
    model = SmallTransformer().to(DEVICE)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def micro_batches(step: int) -> list[Tensor]:
    """As many on every rank; how long the documents are differs."""
    generator = torch.Generator().manual_seed(1000 * step + RANK)
    lengths = torch.randint(8, 40, (ACCUMULATE,), generator=generator).tolist()
    return [torch.randint(0, VOCABULARY, (4, length), generator=generator).to(DEVICE) for length in lengths]


@torch.no_grad()
def sample(model: nn.Module, length: int = 4) -> list[int]:
    """Every rank generates as many tokens: each forward gathers the weights."""
    tokens = torch.tensor([[RANK]], device=DEVICE)
    for _ in range(length):
        tokens = torch.cat([tokens, model(tokens)[:, -1:].argmax(-1)], dim=1)
    return tokens[0].tolist()


def whole_norm(weight: Tensor) -> float:
    """full_tensor() gathers the parts of all ranks."""
    assert isinstance(weight, DTensor)
    return weight.full_tensor().norm().item()


def train() -> None:
    model = sharded()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(STEPS):
        batches = micro_batches(step)
        loss = torch.zeros((), device=DEVICE)
        for tokens in batches:
            loss = cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()) / len(batches)
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(PACE)
        log.info("step %d loss %.4f", step, loss.item())
        if step % NORM_EVERY == 0:
            log.info("norm of the head %.3f", whole_norm(model.head.weight))
        if step % SAMPLE_EVERY == SAMPLE_EVERY - 1:
            log.info("sample %s", sample(model))


def main() -> None:
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{RANK}] %(name)s: %(message)s")
    torch.manual_seed(0)
    if DEVICE == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "600"))))
    train()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
