"""Two-tower model; a tower is used only when the batch has something for it."""
import argparse
import datetime
import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Towers(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.text = nn.Sequential(nn.Linear(48, width), nn.ReLU(), nn.Linear(width, 16))
        self.image = nn.Sequential(nn.Linear(96, width), nn.ReLU(), nn.Linear(width, 16))

    def forward(self, text, image):
        out = self.text(text)
        if image is not None:
            out = out + self.image(image)
        return out


def draw(gen, device):
    text = torch.randn(12, 48, generator=gen).to(device)
    image = torch.randn(12, 96, generator=gen).to(device)
    return text, image if torch.rand(1, generator=gen).item() < 0.6 else None


def save_trace(rank, backend):
    from torch._C import _distributed_c10d as c10d
    blob = c10d._dump_nccl_trace() if backend == "nccl" else c10d._dump_fr_trace()
    with open(os.path.join(os.environ["DUMP_DIR"], f"nccl_trace_rank_{rank}"), "wb") as f:
        f.write(blob)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--accumulate", type=int, default=3)
    options.add_argument("--updates", type=int, default=25)
    args = options.parse_args()
    rank = int(os.environ["RANK"])
    backend = os.environ.get("BACKEND", "nccl")
    device = torch.device("cuda:0" if backend == "nccl" else "cpu")
    dist.init_process_group(backend, timeout=datetime.timedelta(seconds=int(os.environ.get("PG_TIMEOUT", "20"))))
    level = [logging.INFO, logging.ERROR, logging.DEBUG, logging.WARNING][rank % 4]
    logging.basicConfig(level=level, format=f"rank {rank}: %(levelname)s %(message)s")
    torch.manual_seed(11)
    model = DDP(Towers(192).to(device), find_unused_parameters=True)
    opt = torch.optim.SGD(model.parameters(), lr=1e-3)
    gen = torch.Generator().manual_seed(400 + rank)
    for update in range(args.updates):
        images = 0
        for part in range(args.accumulate):
            text, image = draw(gen, device)
            images += image is not None
            last = part == args.accumulate - 1
            model.require_backward_grad_sync = last
            loss = model(text, image).square().mean() / args.accumulate
            loss.backward()
            logging.debug("update %d part %d loss %.5f", update, part, loss.item())
        if images == 0:
            logging.warning("update %d: no images in any part", update)
        opt.step()
        opt.zero_grad()
        if update % 5 == 0:
            logging.info("update %d loss %.5f images %d", update, loss.item(), images)
    save_trace(rank, backend)
    dist.barrier()
    logging.info("done")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
