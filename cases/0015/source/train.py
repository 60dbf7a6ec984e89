"""Training with per-key statistics summed over the ranks."""
import logging, os, datetime
import torch
import torch.nn as nn
import torch.distributed as dist
from stats import Statistics

log = logging.getLogger("train")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(128, 64, bias=False).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    stats = Statistics(device)
    for step in range(20):
        x = torch.randn(8, 128, device=device)
        loss = model(x).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        opt.step()
        stats.add("loss", loss.detach().reshape(1))
        stats.add("grad_norm", model.weight.grad.norm(dim=1))
        stats.add("lengths", torch.full((512,), 8.0, device=device))
        stats.add("token_counts", torch.ones(32000, device=device))
        stats.add("expert_load", torch.ones(16, device=device))
        stats.add("accuracy", torch.zeros(4, device=device))
        if step % 5 == 4:
            summed = stats.reduced()
            log.info("step %d loss %.4f", step, summed["loss"].item() / world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
