"""Attention over a sequence that is split over the ranks; keys and values travel in a ring."""
import datetime, logging, os
import torch, torch.distributed as dist

from ring import Ring

log = logging.getLogger("ring-attention")


def attention(query, block, ring):
    out = torch.zeros_like(query)
    for hop in range(ring.size):
        weight = torch.softmax(query @ block.T / block.shape[1] ** 0.5, dim=-1)
        out += weight @ block
        if hop + 1 < ring.size:
            block = ring.pass_on(block)
    return out / ring.size


@torch.no_grad()
def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(rank)
    ring = Ring(rank, world)
    for step in range(12):
        ring.before_step(step)
        tokens = torch.randn(64, 64, device=device)
        out = attention(tokens, tokens.clone(), ring)
        log.info("step %d norm %.4f", step, out.norm().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
