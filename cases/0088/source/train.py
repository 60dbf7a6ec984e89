"""Start from weights that rank 0 reads; the other ranks receive them."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from tables import read_tables, shape_of

log = logging.getLogger("init")


def distribute(rank, names, device):
    out = {}
    for name in names:
        table = read_tables(name).to(device) if rank == 0 else torch.zeros(shape_of(name, rank), device=device)
        dist.broadcast(table, src=0)
        out[name] = table
    return out


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    tables = distribute(rank, ["words", "positions", "segments", "output"], device)
    for step in range(6):
        total = torch.stack([t.mean() for t in tables.values()])
        dist.all_reduce(total)
        for t in tables.values():
            t -= 1e-3 * total.sum() / world
    log.info("rows %s, means %s", {n: len(t) for n, t in tables.items()}, [round(float(v), 4) for v in total])
    from torch._C._distributed_c10d import _dump_fr_trace
    blob = _dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
        f.write(blob)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
