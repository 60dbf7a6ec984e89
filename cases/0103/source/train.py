"""Two-stage pipeline with replicas; each stage does its own collectives, the two ends share an embedding."""
import logging, time
import torch, torch.distributed as dist
from torch import nn
from grid import Grid

log = logging.getLogger("grid")


class Worker:
    def __init__(self, grid):
        self.grid = grid
        torch.manual_seed(grid.stage)
        self.layer = nn.Linear(64, 64).to(grid.device)
        self.embedding = torch.ones(20, 64, device=grid.device)

    def front_step(self, micro):
        for number in range(micro):
            time.sleep(0.01 * (1 + self.grid.replica))
            x = self.embedding[torch.arange(8, device=self.grid.device)] * (1 + number)
            dist.send(self.layer(x).detach(), dst=self.grid.peer)
        grad = self.layer.weight.detach() * 1e-3
        dist.all_reduce(grad, group=self.grid.front)
        return grad.norm()

    def back_step(self, micro, step):
        losses = []
        for _ in range(micro):
            x = torch.empty(8, 64, device=self.grid.device)
            dist.recv(x, src=self.grid.peer)
            losses.append(self.layer(x).square().mean().detach())
        loss = torch.stack(losses).mean().reshape(1)
        if step % 3 == 2:
            dist.all_reduce(loss, group=self.grid.back)
            log.info("step %d loss %.4f", step, loss.item() / 2)
        grad = self.layer.weight.detach() * loss
        dist.all_reduce(grad, group=self.grid.back)
        return grad.norm()

    def share_embedding(self):
        if not self.grid.tied:
            return
        dist.all_reduce(self.embedding, group=self.grid.tie)
        self.embedding /= 2


def main():
    grid = Grid()
    worker = Worker(grid)
    for step in range(15):
        if grid.first:
            norm = worker.front_step(micro=3)
        if grid.last:
            norm = worker.back_step(micro=3, step=step)
        if step % 2 == 0:
            worker.share_embedding()
        if step % 5 == 4:
            total = norm.reshape(1).clone()
            dist.all_reduce(total)
            log.info("step %d norm %.4f", step, total.item())
    grid.save_trace()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
