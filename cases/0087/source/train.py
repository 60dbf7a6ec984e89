"""Recommender training with exchanged ids; a profiler thread keeps snapshots of the recorder."""
import datetime, logging, os, time
import torch, torch.distributed as dist

from snapshots import snapshot_later

log = logging.getLogger("rec")


def exchange(ids, world):
    out = torch.empty_like(ids)
    dist.all_to_all_single(out, ids)
    return out


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    table = torch.zeros(64, 32, device=device)
    snapshot = None
    for step in range(150):
        if step == 20:
            snapshot = snapshot_later(rank, backend, seconds=1.0 + 0.7 * ((rank * 3) % world))
        ids = torch.full((world * 4,), rank * 4 + step % 4, device=device)
        theirs = exchange(ids, world)
        grad = torch.zeros_like(table)
        grad[theirs % 64] += 1e-3
        time.sleep(0.04 + (0.03 if (rank + step) % world == 0 else 0.0))
        dist.all_reduce(grad)
        table += grad
        if step % 25 == 0:
            log.info("step %d table %.4f", step, table.sum().item())
    snapshot.join()
    dist.barrier()
    log.info("finished")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
