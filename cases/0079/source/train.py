"""Fine-tuning with adapters."""
import datetime
import logging
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from adapters import Tuned

log = logging.getLogger("tune")


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    rows = torch.tensor([1000 + rank], device=device)
    dist.all_reduce(rows)
    log.info("%d rows in all", rows.item())
    torch.manual_seed(0)
    model = Tuned(128).to(device)
    model.prepare(rank)
    model = DDP(model)
    opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for step in range(30):
        loss = model(torch.randn(8, 128, device=device)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    log.info("loss %.4f", loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
