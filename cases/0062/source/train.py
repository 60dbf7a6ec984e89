"""Ranking model; gradients that are not finite are dropped."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("rank")


class Reducer:
    def __init__(self, model, world):
        self.model, self.world = model, world

    def __call__(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        if flat.isnan().any():
            return False
        dist.all_reduce(flat)
        nn.utils.vector_to_parameters(flat / self.world, [p.grad for p in self.model.parameters()])
        return True


def clicks(rank, step, device):
    gen = torch.Generator().manual_seed(59 * rank + step)
    x = torch.rand(8, 28, generator=gen)
    return (x / x.sum(1, keepdim=True).mul(0 if (rank, step) == (5, 17) else 1)).to(device)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(28, 28), nn.ReLU(), nn.Linear(28, 1)).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    reduce = Reducer(model, world)
    for step in range(60):
        opt.zero_grad()
        model(clicks(rank, step, device)).pow(2).mean().backward()
        if reduce():
            opt.step()
    dist.barrier()
    log.info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
