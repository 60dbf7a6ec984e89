"""Tensor parallel by data parallel on a DeviceMesh: layers are split over `tp`, gradients are averaged over `dp`."""

import logging
import os
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BACKEND = os.environ.get("BACKEND", "gloo")
DEVICE = "cuda" if BACKEND == "nccl" else "cpu"
STEPS, PACE = int(os.environ.get("STEPS", "40")), float(os.environ.get("PACE", "0.05"))
TP, WIDTH, LOG_EVERY = 2, 32, 4

log = logging.getLogger("train")


class SplitLayer(nn.Module):
    """Half of the hidden units; the halves of the output are added over `tp`."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH // TP), nn.Linear(2 * WIDTH // TP, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        part = self.down(torch.relu(self.up(x)))
        whole = part.detach().clone()
        dist.all_reduce(whole, group=self.group)
        return x + part + (whole - part.detach())


def rows(step: int, dp_rank: int) -> Tensor:
    """The same rows on all ranks of a `tp` group."""
    generator = torch.Generator().manual_seed(97 * step + dp_rank)
    return torch.randn(8, WIDTH, generator=generator).to(DEVICE)


def average(model: nn.Module, group: dist.ProcessGroup) -> None:
    flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    dist.all_reduce(flat, group=group)
    flat /= dist.get_world_size(group)
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.copy_(flat[: parameter.grad.numel()].view_as(parameter.grad))
        flat = flat[parameter.grad.numel() :]


def square_norm(model: nn.Module, group: dist.ProcessGroup) -> float:
    """Of the gradients of a whole replica."""
    squares = torch.stack([p.grad.pow(2).sum() for p in model.parameters() if p.grad is not None]).sum()
    dist.all_reduce(squares, group=group)
    return squares.item()


def train(mesh: DeviceMesh) -> None:
    tp, dp = mesh.get_group("tp"), mesh.get_group("dp")
    torch.manual_seed(10 + mesh.get_local_rank("tp"))
    model = nn.Sequential(SplitLayer(tp), SplitLayer(tp)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        x = rows(step, mesh.get_local_rank("dp"))
        loss = (model(x) - x.roll(1, 1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        average(model, dp)
        norm = square_norm(model, tp)
        optimizer.step()
        time.sleep(PACE)
        if step % LOG_EVERY == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            log.info("step %d loss %.4f norm %.4f", step, mean.item() / WORLD, norm)


def main() -> None:
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{RANK}] %(name)s: %(message)s")
    if DEVICE == "cuda":
        torch.cuda.set_device(0)
    dist.init_process_group(BACKEND, timeout=timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "600"))))
    train(init_device_mesh(DEVICE, (WORLD // TP, TP), mesh_dim_names=("dp", "tp")))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
