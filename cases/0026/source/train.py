"""Training with a curve of the loss over token positions."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("train")


class Documents:
    def __init__(self, rank, device):
        self.rank, self.device = rank, device

    def batch(self, step):
        length = 4096
        if self.rank == 3 and step == 5:
            length = 262144  # a book
        gen = torch.Generator().manual_seed(1 + 10 * self.rank + step)
        return torch.rand(length, 4, generator=gen).to(self.device)


def position_curve(losses):
    """Mean loss at every position, over all ranks."""
    curve = losses.detach().clone()
    dist.all_reduce(curve)
    return curve / dist.get_world_size()


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(4, 256, bias=False).to(device)
    docs = Documents(rank, device)
    for step in range(12):
        losses = model(docs.batch(step)).pow(2).mean(1)
        model.zero_grad()
        losses.mean().backward()
        dist.all_reduce(model.weight.grad)
        curve = position_curve(losses)
        log.info("step %d loss %.4f, at the end %.4f", step, losses.mean().item(), curve[-1].item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
