"""Experts on eight ranks; shards of unequal size, hierarchical sums, snapshots by the clock of the main process."""
import logging, os, time
import torch, torch.distributed as dist
from torch import nn
from cluster import Cluster
from tokens import TokenShard

log = logging.getLogger("experts")


def exchange(x, dest, world):
    order = torch.argsort(dest, stable=True)
    send = torch.bincount(dest, minlength=world)
    recv = torch.empty_like(send)
    dist.all_to_all_single(recv, send)
    out = x.new_empty(int(recv.sum()), x.shape[1])
    dist.all_to_all_single(out, x[order].contiguous(), recv.tolist(), send.tolist())
    return out


class Snapshots:
    def __init__(self, every):
        self.every, self.last = every, time.monotonic()

    def due(self):
        if time.monotonic() - self.last < self.every:
            return False
        self.last = time.monotonic()
        return True


def snapshot(expert, cluster, step):
    parts = [torch.empty_like(expert.weight) for _ in range(cluster.world)]
    dist.all_gather(parts, expert.weight.detach())
    if cluster.rank == 0:
        time.sleep(0.3)
        log.info("step %d: %d experts saved", step, len(parts))


def main():
    cluster = Cluster()
    torch.manual_seed(cluster.rank)
    expert = nn.Linear(48, 48).to(cluster.device)
    shard, snapshots = TokenShard(cluster.rank), Snapshots(every=0.5)
    steps = cluster.agree(len(shard), dist.ReduceOp.MIN)
    log.info("%d of %d batches", steps, len(shard))
    for step, (x, dest) in zip(range(steps), shard):
        time.sleep(0.015 * (cluster.rank % 3))
        mine = exchange(x.to(cluster.device), dest.to(cluster.device), cluster.world)
        if len(mine):
            expert(mine).square().mean().backward()
        norm = expert.weight.grad.norm().reshape(1) if expert.weight.grad is not None else torch.zeros(1)
        total = cluster.sum_over_all(norm.to(cluster.device))
        if step % 4 == 0:
            log.info("step %d norm %.4f", step, total.item())
        if cluster.told_by_main(snapshots.due()):
            snapshot(expert, cluster, step)
    from torch._C import _distributed_c10d as c10d
    blob = c10d._dump_nccl_trace() if cluster.backend == "nccl" else c10d._dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{cluster.rank}"), "wb") as file:
        file.write(blob)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
