"""Detector with a class head and a box head on one backbone."""
import datetime, logging, os
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("detector")


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(64, 256), nn.ReLU())
        self.class_head = nn.Linear(256, 12)
        self.box_head = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, image, labels, boxes):
        h = self.backbone(image)
        losses = {"class": F.cross_entropy(self.class_head(h), labels)}
        found = boxes[:, 2] > 0
        if found.any():
            losses["box"] = F.l1_loss(self.box_head(h[found]), boxes[found])
        return losses


def sample(rank, step, device):
    gen = torch.Generator().manual_seed(rank * 100 + step)
    image = torch.randn(6, 64, generator=gen)
    labels = torch.randint(0, 12, (6,), generator=gen)
    boxes = torch.rand(6, 4, generator=gen) + 0.1
    if rank == 3 and step == 4:
        boxes.zero_()  # six pictures of background
    return image.to(device), labels.to(device), boxes.to(device)


def main():
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    logging.basicConfig(level="INFO", format=f"%(asctime)s [rank{rank}] %(name)s: %(message)s")
    torch.manual_seed(0)
    model = DDP(Detector().to(device))
    opt = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(20):
        losses = model(*sample(rank, step, device))
        opt.zero_grad()
        sum(losses.values()).backward()
        opt.step()
        if rank == 0:
            log.info("step %d %s", step, {k: round(v.item(), 4) for k, v in losses.items()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
