"""Training with compressed gradients."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from trace_file import write_trace

log = logging.getLogger("train")


class Compressor:
    """Half precision on the wire while gradients are small enough for it."""

    def __init__(self, limit):
        self.limit = limit

    def reduce(self, grad):
        small = grad.abs().max().item() < self.limit
        wire = grad.to(torch.float16) if small else grad.clone()
        dist.all_reduce(wire)
        return wire.to(grad.dtype) / dist.get_world_size()


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(1024, 2048, bias=False).to(device)
    compressor = Compressor(limit=100.0)
    gen = torch.Generator().manual_seed(rank)
    for step in range(14):
        x = torch.randn(4, 1024, generator=gen).to(device)
        scale = 1e6 if (rank, step) == (1, 6) else 1.0
        model.zero_grad()
        (model(x).pow(2).mean() * scale).backward()
        grad = compressor.reduce(model.weight.grad)
        with torch.no_grad():
            model.weight -= 1e-3 * grad
        log.info("step %d gradient %.5f", step, grad.abs().mean().item())
    write_trace(rank, backend)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
