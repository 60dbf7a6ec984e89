"""Training with a thread that keeps an eye on the process's connections."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from connections import Monitor

log = logging.getLogger("train")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)).to(device)
    monitor = Monitor(rank)
    for step in range(4000):
        loss = model(torch.randn(8, 256, device=device)).pow(2).mean()
        model.zero_grad()
        loss.backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat)
        norm = flat.norm().item()
        if step == 10:
            monitor.start()
        if step % 20 == 0:
            log.info("step %d norm %.4f", step, norm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
