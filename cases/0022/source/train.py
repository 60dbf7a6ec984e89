"""One-forward-one-backward pipeline over four stages."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from schedule import OneForwardOneBackward

log = logging.getLogger("1f1b")


class Stage:
    def __init__(self, rank, world, device):
        self.rank, self.last, self.device = rank, rank == world - 1, device
        self.layer = nn.Linear(64, 64).to(device)
        self.micro = 0

    def forward(self, x):
        y = torch.tanh(self.layer(x))
        if self.last:
            self.micro += 1
            target = float("nan") if self.micro == 10 else 0.0
            y = (y - target).pow(2).mean()
        return y

    def backward(self, x, y, grad):
        """Gradient for the stage before this one; None when there is nothing to learn from."""
        if self.last and not torch.isfinite(y):
            log.info("micro-batch %d has no target", self.micro)
            return None
        torch.autograd.backward(y, grad)
        return x.grad


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(rank)
    stage = Stage(rank, world, device)
    opt = torch.optim.SGD(stage.layer.parameters(), lr=1e-3)
    schedule = OneForwardOneBackward(stage, rank, world, (4, 64), device)
    for step in range(6):
        opt.zero_grad()
        schedule.run(micro_batches=4)
        opt.step()
        torch.cuda.synchronize() if device.type == "cuda" else None
        log.info("step %d done", step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
