"""Fine-tuning over a sharded record file, each rank reads its own part."""
import datetime, logging, os
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("finetune")
RECORDS = {0: 192, 1: 196, 2: 147, 3: 194}  # as counted when the shards were written


def loader(rank, batch_size, device):
    gen = torch.Generator().manual_seed(rank)
    for _ in range(RECORDS[rank] // batch_size):
        yield torch.randn(batch_size, 64, generator=gen).to(device)


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(64, 192), nn.ReLU(), nn.Linear(192, 64)).to(device))
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    seen = 0
    for batch in loader(rank, 16, device):
        loss = (model(batch) - batch).abs().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen += len(batch)
    log.info("one pass over %d records, loss %.4f", seen, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
