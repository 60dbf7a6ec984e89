"""Sharded optimizer, written by hand."""
import datetime, logging, os, signal
import torch, torch.distributed as dist

log = logging.getLogger("zero")
BUDGET_MB = 64 * 1024


class Memory:
    """Host memory as the node agent sees it."""

    def __init__(self, rank):
        self.pinned_mb = 0
        self.growth = 16 * 1024 if rank == 3 else 16

    def step(self):
        self.pinned_mb += self.growth
        if self.pinned_mb > BUDGET_MB:
            os.kill(os.getpid(), signal.SIGKILL)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    memory = Memory(rank)
    weights = torch.linspace(-1, 1, 16384, device=device)
    moment = torch.zeros(16384 // world, device=device)
    for step in range(20):
        memory.step()
        grad = torch.cos(weights) + rank
        mine = torch.empty_like(moment)
        dist.reduce_scatter_tensor(mine, grad)
        moment.mul_(0.9).add_(mine / world)
        dist.all_gather_into_tensor(weights, weights.chunk(world)[rank] - 1e-3 * moment)
        log.info("step %d weight %.5f", step, weights.mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
