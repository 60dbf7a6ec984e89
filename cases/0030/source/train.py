"""Training from a data loader with worker processes."""
import datetime, logging, os
import torch, torch.nn as nn, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from records import Records

log = logging.getLogger("train")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = DDP(nn.Sequential(nn.Linear(40, 160), nn.ReLU(), nn.Linear(160, 40)).to(device))
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    records = Records(rank)
    loader = DataLoader(records, batch_size=8, num_workers=1, multiprocessing_context="fork")
    for epoch in range(4):
        records.refresh(epoch)
        for batch in loader:
            x = batch.to(device)
            loss = (model(x) - x).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.info("epoch %d loss %.4f", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
