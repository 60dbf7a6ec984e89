"""Mixed-precision training: gradients and overflow counters travel in groups of their own."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("amp")


class Sync:
    def __init__(self, world):
        self.world = world
        self.grads = dist.new_group(group_desc="grads")
        self.stats = dist.new_group(group_desc="stats")

    def gradients(self, model):
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat, group=self.grads)
        nn.utils.vector_to_parameters(flat / self.world, [p.grad for p in model.parameters()])
        return flat.norm().item()

    def overflows(self, count):
        dist.all_reduce(count, group=self.stats)
        return count.item()


def train_step(model, x, sync, scale):
    (model(x).pow(2).mean() * scale).backward()
    bad = sum((~torch.isfinite(p.grad)).sum() for p in model.parameters()).reshape(1)
    if bad.item() > 0:
        # tell everybody first, so that the scale drops before these gradients are used
        total = sync.overflows(bad)
        for p in model.parameters():
            p.grad.nan_to_num_(0.0, 0.0, 0.0)
        norm = sync.gradients(model)
    else:
        norm = sync.gradients(model)
        total = sync.overflows(bad)
    return norm, total


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16)).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=1e-4)
    sync, scale = Sync(world), 1024.0
    for step in range(16):
        x = torch.randn(8, 64, device=device) * (3e37 if (rank, step) == (1, 8) else 1.0)
        opt.zero_grad()
        norm, total = train_step(model, x, sync, scale)
        scale = scale / 2 if total else scale
        opt.step()
        log.info("step %d gradient norm %.3f overflows %d", step, norm, total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
