"""Sharded training with gradient clipping and a mean loss."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from model import sharded_net

log = logging.getLogger("train")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    net = sharded_net(device, world)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(8):
        x = torch.randn(4 + 2 * rank, 32, device=device)
        loss = (net(x) - x).pow(2).mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        mean = loss.detach().reshape(1)
        dist.all_reduce(mean)
        if rank == 0:
            log.info("step %d loss %.4f norm %.4f", step, mean.item() / world, float(norm.to_local()))
        norm.full_tensor()
    from torch._C import _distributed_c10d as c10d
    blob = c10d._dump_nccl_trace() if backend == "nccl" else c10d._dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
        f.write(blob)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
