"""Sharded training with a report of the weights from time to time."""
import torch, torch.distributed as dist
from model import sharded_net
from run_env import join
from report import Reporter


def main():
    rank, world, device = join()
    torch.manual_seed(0)
    net = sharded_net(device, world)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3)
    reporter = Reporter(rank, every=5)
    for step in range(15):
        x = torch.randn(8, 32, device=device)
        loss = (net(x) - x).pow(2).mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        reporter.after_step(step, loss.item(), net)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
