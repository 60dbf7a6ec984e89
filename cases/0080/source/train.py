"""Sharded training of a small residual network."""
import logging

import torch
import torch.distributed as dist

from network import build
from runtime import start
from curriculum import Curriculum

log = logging.getLogger("train")


def main():
    rank, world, device = start()
    torch.manual_seed(5)
    net = build(world, device)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    lessons = Curriculum(rank, device)
    for step in range(16):
        x = lessons.pick(step, net)
        loss = (net(x) - x).square().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        log.info("step %d loss %.4f", step, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
