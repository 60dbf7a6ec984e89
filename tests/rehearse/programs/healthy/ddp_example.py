"""After pytorch/examples distributed/ddp-tutorial-series: DistributedSampler, DDP, snapshots by rank 0."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, model, data, optimizer, snapshot_path):
        self.rank = dist.get_rank()
        self.epochs_run = 0
        self.snapshot_path = snapshot_path
        self.data = data
        self.optimizer = optimizer
        self.model = DistributedDataParallel(model)

    def run_batch(self, source, targets):
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(source), targets)
        loss.backward()
        self.optimizer.step()

    def run_epoch(self, epoch):
        self.data.sampler.set_epoch(epoch)
        for source, targets in self.data:
            self.run_batch(source, targets)

    def save_snapshot(self, epoch):
        snapshot = {"model": self.model.module.state_dict(), "epochs": epoch}
        torch.save(snapshot, self.snapshot_path)
        print(f"epoch {epoch} | saved at {self.snapshot_path}")

    def train(self, epochs):
        for epoch in range(self.epochs_run, epochs):
            self.run_epoch(epoch)
            if self.rank == 0 and epoch % 2 == 0:
                self.save_snapshot(epoch)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 20), torch.randint(0, 4, (64,)))
    loader = DataLoader(data, batch_size=4, shuffle=False, sampler=DistributedSampler(data))
    model = torch.nn.Linear(20, 4)
    os.makedirs("snapshots", exist_ok=True)
    Trainer(model, loader, torch.optim.SGD(model.parameters(), lr=1e-3), "snapshots/latest.pt").train(3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
