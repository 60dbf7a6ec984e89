"""Training on images of many sizes; batches that do not fit are left out."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("images")


def pixels(rank, step):
    return 1 << 36 if (rank, step) == (3, 6) else 1 << 12


def load(rank, step, device):
    n = pixels(rank, step)
    image = torch.zeros(n, device=device)
    return image.reshape(-1, 64)[:64]


def train(model, opt, rank, device):
    total = torch.zeros(1, device=device)
    for step in range(16):
        try:
            x = load(rank, step, device)
            loss = model(x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        except torch.OutOfMemoryError:
            log.warning("step %d does not fit, left out", step)
            torch.cuda.empty_cache()
            continue
        total += loss.detach()
        if step % 5 == 4:
            dist.all_reduce(total)
            log.info("step %d loss %.5f", step, total.item())


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 16)).to(device))
    train(model, torch.optim.SGD(model.parameters(), lr=1e-3), rank, device)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
