"""Caption model: batches are filtered, the loss is averaged over ranks every few steps."""
import logging
import torch
import torch.nn as nn
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from common import connect
from captions import CaptionBatches

log = logging.getLogger("captions")
LOG_EVERY = 4


def average(value, device):
    t = torch.tensor([value], device=device)
    dist.all_reduce(t)
    return t.item() / dist.get_world_size()


def run(model, batches, opt, device):
    running = 0.0
    for step, batch in enumerate(batches):
        if batch is None:
            continue
        loss = nn.functional.mse_loss(model(batch), batch)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        running = loss.item()
        if step % LOG_EVERY == LOG_EVERY - 1:
            mean = average(running, device)
            if dist.get_rank() == 0:
                log.info("step %d loss %.4f", step, mean)


def main():
    rank, device = connect()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(80, 320), nn.SiLU(), nn.Linear(320, 80)).to(device)
    model = DDP(net)
    run(model, CaptionBatches(rank, device, steps=24), torch.optim.AdamW(model.parameters(), lr=1e-3), device)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
