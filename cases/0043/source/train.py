"""Pipeline of two stages with two replicas; the last stage also tracks its loss."""
import logging, os
import torch, torch.nn as nn, torch.distributed as dist
from grid import Grid

log = logging.getLogger("grid")


@torch.no_grad()
def run_step(grid, layer, micro):
    loss = torch.zeros(1, device=grid.device)
    for _ in range(micro):
        if grid.stage == 0:
            dist.send(layer(torch.randn(4, 96, device=grid.device)), dst=grid.next)
        else:
            x = torch.empty(4, 96, device=grid.device)
            dist.recv(x, src=grid.prev)
            loss += layer(x).pow(2).mean()
            dist.all_reduce(loss, group=grid.dp)
    dist.all_reduce(layer.weight, group=grid.dp)
    layer.weight.div_(2)
    return loss.item()


def main():
    grid = Grid()
    torch.manual_seed(grid.stage)
    layer = nn.Linear(96, 96, bias=False).to(grid.device)
    for step in range(24):
        loss = run_step(grid, layer, micro=3)
        if step % 6 == 5:
            total = torch.tensor([loss], device=grid.device)
            dist.all_reduce(total)
            log.info("step %d loss %.4f", step, total.item())
    from torch._C import _distributed_c10d as c10d
    blob = c10d._dump_nccl_trace() if grid.backend == "nccl" else c10d._dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{grid.rank}"), "wb") as f:
        f.write(blob)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
