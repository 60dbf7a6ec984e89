"""Mixture of experts: every rank is one expert, tokens travel by all_to_all."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist

log = logging.getLogger("moe")


class Experts(nn.Module):
    def __init__(self, width, world):
        super().__init__()
        self.world = world
        self.router, self.expert = nn.Linear(width, world), nn.Linear(width, width)

    def exchange(self, tokens, send, recv):
        out = tokens.new_empty(sum(recv), tokens.shape[1])
        dist.all_to_all_single(out, tokens.contiguous(), recv, send)
        return out

    def forward(self, x):
        dest = self.router(x).argmax(-1)
        order = dest.argsort()
        send = torch.bincount(dest, minlength=self.world)
        recv = torch.empty_like(send)
        dist.all_to_all_single(recv, send)
        send, recv = send.tolist(), recv.tolist()
        mine = self.exchange(x[order], send, recv)
        back = self.exchange(self.expert(mine), recv, send)
        return torch.empty_like(back).index_copy_(0, order, back)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = Experts(32, world).to(device)
    torch.manual_seed(50 + rank)
    with torch.no_grad():
        for step in range(8):
            y = model(torch.randn(24 + 8 * rank + step, 32, device=device))
            mean = y.mean().reshape(1)
            dist.all_reduce(mean)
            log.info("step %d mean %.4f", step, mean.item() / world)
    from torch._C import _distributed_c10d as c10d
    blob = c10d._dump_nccl_trace() if backend == "nccl" else c10d._dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
        f.write(blob)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
