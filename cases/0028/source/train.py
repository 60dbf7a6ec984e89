"""Start from a checkpoint that the first rank reads and hands to the others."""
import datetime, logging, os
import torch, torch.distributed as dist
from config import load_config

log = logging.getLogger("init")


def shapes(config):
    width = config["width"]
    out = [("embed", (config["vocab"], width))]
    for i in range(config["layers"]):
        out.append((f"layer{i}", (width, 4 * width if i < 3 else config["ffn"])))
    return out


def restore(config, rank, device):
    weights = {}
    for name, shape in shapes(config):
        weight = torch.full(shape, 0.5, device=device) if rank == 0 else torch.empty(shape, device=device)
        dist.broadcast(weight, src=0)
        weights[name] = weight
        torch.cuda.synchronize() if device.type == "cuda" else None
        log.info("%s %s", name, tuple(weight.shape))
    return weights


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    weights = restore(load_config(rank), rank, device)
    total = torch.stack([w.sum() for w in weights.values()])
    dist.all_reduce(total)
    log.info("checksum %.1f", total.sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
