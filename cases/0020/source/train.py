"""Four pipeline stages, forward only, eight steps of four micro-batches."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from link import Link

log = logging.getLogger("pipe")


def save_trace(rank, backend):
    from torch._C import _distributed_c10d as c10d
    blob = c10d._dump_nccl_trace() if backend == "nccl" else c10d._dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
        f.write(blob)


@torch.no_grad()
def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    layer = nn.Linear(128, 128).to(device)
    link = Link(rank, world, (4, 128), device)
    for step in range(8):
        for _ in range(4):
            y = layer(link.recv_forward())
            link.send_forward(y)
        done = torch.ones(1, device=device)
        dist.all_reduce(done)
        log.info("step %d stages done %d", step, int(done.item()))
    save_trace(rank, backend)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
