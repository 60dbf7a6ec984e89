"""Training that starts when the node's staging area is complete."""
import datetime, logging, os, pathlib, time
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("train")


def wait_for_staging(rank):
    """The copy job leaves a marker per node when all files are there."""
    marker = pathlib.Path("staging") / f"node{rank}.done"
    while not marker.exists():
        time.sleep(0.5)
    log.info("staged: %s", marker.read_text().strip())


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    wait_for_staging(rank)
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4)).to(device))
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(20):
        loss = model(torch.randn(8, 32, device=device)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    log.info("loss %.4f", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
