"""Domain decomposition: every rank shares an edge with its left and right neighbour."""
import datetime, logging, os
import torch, torch.distributed as dist

log = logging.getLogger("edges")


class Edges:
    def __init__(self, rank, world, device):
        groups = [dist.new_group(sorted([i, (i + 1) % world]), group_desc=f"edge_{i}") for i in range(world)]
        self.left, self.right = (groups[rank - 1], rank - 1), (groups[rank], rank)
        self.world, self.device = world, device

    def by_number(self):
        return sorted([self.left, self.right], key=lambda edge: edge[1] % self.world)

    def exchange(self, field, order):
        for group, _ in order:
            edge = field[:8].clone()
            work = dist.all_reduce(edge, group=group, async_op=True)
            work.wait()
            field[:8] = edge / 2


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    edges = Edges(rank, world, device)
    field = torch.full((64,), float(rank), device=device)
    for step in range(12):
        moving = step >= 6
        edges.exchange(field, [edges.right, edges.left] if moving else edges.by_number())
        field = torch.roll(field, 8) if moving else field
        residual = field.std().reshape(1)
        dist.all_reduce(residual)
        log.info("step %d residual %.4f", step, residual.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
