"""Mixture of experts, two experts per rank, with placement by load."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from exchange import Exchange
from placement import Placement

log = logging.getLogger("moe")


def route(rank, step):
    gen = torch.Generator().manual_seed(50 * rank + step)
    routed = torch.randint(0, 8, (512,), generator=gen)
    if rank == 3:
        routed[:300] = 1  # one domain only
    return torch.randn(512, 256, generator=gen), routed


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(rank)
    expert = nn.Linear(256, 256).to(device)
    opt = torch.optim.SGD(expert.parameters(), lr=1e-2)
    placement = Placement(8, world)
    exchange = Exchange(placement, rank, world, device)
    for step in range(12):
        x, routed = route(rank, step)
        placement.count(routed)
        done, back = exchange(x.to(device), routed, expert)
        opt.zero_grad()
        done.square().mean().backward()
        opt.step()
        level = back.square().mean().reshape(1)
        dist.all_reduce(level)
        log.info("step %d level %.4f", step, level.item() / world)
        if step % 4 == 3:
            log.info("experts at %s", placement.rebalance())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
