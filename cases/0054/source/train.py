"""Eight ranks with a replicated model; the last one streams snapshots to the uploader."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from snapshots import SnapshotPipe

log = logging.getLogger("train")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "gloo")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = nn.Linear(48, 48, bias=False).to(device)
    pipe = SnapshotPipe("snapshot.pipe") if rank == world - 1 else None
    for step in range(20):
        x = torch.randn(4, 48, device=device)
        loss = (model(x) - x).pow(2).mean()
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.weight.grad)
        with torch.no_grad():
            model.weight -= 1e-3 * model.weight.grad
        if pipe is not None and step % 6 == 5:
            pipe.write(step, model.weight)
    log.info("loss %.4f", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
