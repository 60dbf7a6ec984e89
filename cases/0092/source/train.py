"""Policy training with a sharded optimizer, a replay buffer per rank and snapshots every few seconds."""
import datetime, logging, os, time
import torch, torch.distributed as dist
from storage import Storage

log = logging.getLogger("policy")


class Replay:
    def __init__(self, limit):
        self.limit, self.rows = limit, []

    def add(self, rows):
        self.rows.extend(rows)
        return len(self.rows) > self.limit

    def drain(self):
        rows, self.rows = self.rows, []
        return rows


class Environment:
    """Episodes of the actors next to this rank; some actors play longer ones."""

    def __init__(self, rank):
        self.gen = torch.Generator().manual_seed(rank)
        self.length = 30 if rank == 2 else 12

    def play(self):
        time.sleep(0.2)
        return list(torch.randn(self.length, 32, generator=self.gen))


def learn(weights, rows, rank, world, device):
    batch = torch.stack(rows[:12]).to(device)
    grad = torch.tanh(weights.view(32, -1)).mul(batch.mean(0)[:, None]).flatten().contiguous()
    dist.all_reduce(grad)
    size = weights.numel() // world
    shard = weights[rank * size : (rank + 1) * size] - 1e-2 / world * grad[rank * size : (rank + 1) * size]
    dist.all_gather_into_tensor(weights, shard.contiguous())
    return shard.contiguous(), grad.norm().item()


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    weights = torch.randn(32 * 64, device=device)
    env, replay = Environment(rank), Replay(limit=200)
    dist.barrier()
    storage = Storage(rank, every=2.3)
    for step in range(60):
        rows = env.play()
        shard, norm = learn(weights, rows, rank, world, device)
        if replay.add(rows):
            storage.spill(replay.drain(), step)
        storage.snapshot(shard, step)
        if step % 10 == 0:
            log.info("step %d norm %.4f", step, norm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
