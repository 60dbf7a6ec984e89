"""Text classifier; documents are cleaned on the fly."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from text import TextStream

log = logging.getLogger("text")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 2)).to(device))
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step, counts in enumerate(TextStream(rank, steps=20)):
        loss = nn.functional.cross_entropy(model(counts.to(device)), torch.ones(1, dtype=torch.long, device=device))
        opt.zero_grad()
        loss.backward()
        opt.step()
        log.info("step %d loss %.4f", step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
