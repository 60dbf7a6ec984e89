"""Regression with one flat gradient buffer reduced by hand."""
import datetime, logging, os
import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("train")


def flat_grads(model):
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def scatter_grads(model, flat):
    offset = 0
    for p in model.parameters():
        p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
        offset += p.numel()


def sensor_batch(rank, step, device):
    gen = torch.Generator().manual_seed(1000 * rank + step)
    x = torch.randn(32, 48, generator=gen)
    if rank == 2 and step == 9:
        x[5, 7] = float("inf")  # one reading of this file is saturated
    return x.to(device), x.sum(1, keepdim=True).tanh().to(device)


def train(model, opt, rank, world, device, steps=24):
    for step in range(steps):
        x, y = sensor_batch(rank, step, device)
        loss = nn.functional.mse_loss(model(x), y)
        if not torch.isfinite(loss):
            log.warning("step %d: loss is %s", step, loss.item())
            continue
        opt.zero_grad()
        loss.backward()
        flat = flat_grads(model)
        dist.all_reduce(flat)
        scatter_grads(model, flat / world)
        opt.step()


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(48, 128), nn.ReLU(), nn.Linear(128, 1)).to(device)
    start = torch.cat([p.data.reshape(-1) for p in model.parameters()])
    dist.broadcast(start, src=0)
    torch.nn.utils.vector_to_parameters(start, model.parameters())
    train(model, torch.optim.SGD(model.parameters(), lr=1e-2), rank, world, device)
    dist.barrier()
    log.info("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
