"""Image classifier with validation after every epoch and a patience rule."""
import datetime, logging, os
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("train")


class Patience:
    """Says when the validation loss has not improved for `limit` epochs."""

    def __init__(self, limit):
        self.limit, self.best, self.bad = limit, float("inf"), 0

    def exhausted(self, loss):
        if loss < self.best - 1e-4:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        return self.bad >= self.limit


class ShardedImages:
    """Every rank owns one part of the files, for training and for validation."""

    def __init__(self, rank, device):
        self.gen = torch.Generator().manual_seed(100 + rank)
        self.device = device
        self.val_x = torch.randn(32, 96, generator=self.gen).to(device)
        self.val_y = torch.full((32,), 3 if rank == 1 else 0, device=device)

    def batch(self):
        x = torch.randn(16, 96, generator=self.gen).to(self.device)
        return x, torch.zeros(16, dtype=torch.long, device=self.device)


@torch.no_grad()
def validate(model, data):
    return F.cross_entropy(model.module(data.val_x), data.val_y).item()


def fit(model, data, opt, epochs=12):
    patience = Patience(limit=3)
    val_loss = float("inf")
    for epoch in range(epochs):
        for _ in range(2):
            x, y = data.batch()
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        val_loss = validate(model, data)
        log.info("epoch %d train %.4f val %.4f", epoch, loss.item(), val_loss)
        if patience.exhausted(val_loss):
            log.info("no improvement for %d epochs, stopping", patience.limit)
            break
    return val_loss


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, 8)).to(device))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    last = fit(model, ShardedImages(rank, device), opt)
    total = torch.tensor([last, 1.0], device=device)
    dist.all_reduce(total)
    log.info("mean validation loss %.4f", (total[0] / total[1]).item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
