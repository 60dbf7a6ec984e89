"""Split embedding tables with replicas: activations meet in tp groups, table gradients in dp groups."""
import logging
import torch, torch.distributed as dist

from mesh import Mesh

log = logging.getLogger("tables")


class Table:
    def __init__(self, mesh, rows=400, width=64):
        self.mesh = mesh
        self.weight = torch.full((rows, width), 0.02, device=mesh.device)

    def lookup(self, ids):
        return self.weight[ids] if len(ids) else self.weight[:1] * 0

    def combine(self, rows):
        pooled = rows.sum(0, keepdim=True).contiguous()
        dist.all_reduce(pooled, group=self.mesh.tp)
        return pooled

    def share_gradient(self, rows):
        grad = torch.zeros_like(self.weight)
        grad[: len(rows)] += rows
        dist.all_reduce(grad, group=self.mesh.dp)
        self.weight -= 1e-3 / self.mesh.dp_size * grad


def local_ids(mesh, step):
    """Ids of the batch that fall into the part of the table kept here."""
    gen = torch.Generator().manual_seed(step * 64 + mesh.rank)
    if step == 6 and mesh.rank in (1, 6):
        return []
    return torch.randint(0, 400, (20,), generator=gen).tolist()


def train_step(table, ids):
    rows = table.lookup(ids)
    if not ids:
        table.share_gradient(rows)  # nothing to learn here: do not keep the replicas waiting
        pooled = table.combine(rows)
    else:
        pooled = table.combine(rows)
        table.share_gradient(rows)
    return pooled.norm()


def main():
    mesh = Mesh(tp=4)
    table = Table(mesh)
    for step in range(15):
        norm = train_step(table, local_ids(mesh, step))
        log.info("step %d norm %.4f", step, norm.item())
        table.mesh.settle()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
