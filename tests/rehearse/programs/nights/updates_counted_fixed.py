"""A trainer that counts its updates, saves and evaluates every few of them (own gradient averaging)."""

import argparse
import math
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


class Trainer:
    def __init__(self, args, device):
        self.args = args
        self.device = device
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.num_updates = 0
        self.model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 10, 0.5)

    def train_step(self, features, target):
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(features), target)
        loss.backward()
        value = loss.item()
        vote = torch.tensor([float(math.isfinite(value))], device=self.device)
        dist.all_reduce(vote, dist.ReduceOp.MIN)
        good = vote.item() > 0
        self.average_gradients(good)
        if good:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip)
            self.optimizer.step()
            self.scheduler.step()
            self.num_updates += 1
        else:
            print(f"rank {self.rank}: loss is {value}, update skipped", flush=True)
        return value

    def average_gradients(self, good):
        for parameter in self.model.parameters():
            if not good:
                parameter.grad.zero_()
            dist.all_reduce(parameter.grad)
            parameter.grad /= self.world

    @torch.no_grad()
    def evaluate(self, features, target):
        error = nn.functional.mse_loss(self.model(features), target).reshape(1)
        dist.all_reduce(error)
        return error.item() / self.world

    def save(self, folder):
        if self.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / "last.tmp"
            torch.save({"model": self.model.state_dict(), "updates": self.num_updates}, part)
            part.rename(folder / f"update_{self.num_updates}.pt")
        dist.barrier()


def load_shard(folder, rank, rows):
    path = folder / f"part-{rank:03d}.pt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draw = torch.Generator().manual_seed(rank)
        features = torch.randn(rows, 24, generator=draw)
        torch.save({"x": features, "y": features[:, :3].sum(1, keepdim=True)}, path)
    return torch.load(path, weights_only=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--save-every", type=int, default=4)
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if cuda else torch.device("cpu")
    torch.manual_seed(0)
    trainer = Trainer(args, device)
    shard = load_shard(Path("shards"), trainer.rank, 8 * args.batch)
    held_out = torch.randn(64, 24, generator=torch.Generator().manual_seed(99))
    held_out_target = held_out[:, :3].sum(1, keepdim=True)
    for epoch in range(args.epochs):
        order = torch.randperm(len(shard["x"]), generator=torch.Generator().manual_seed(epoch))
        for chosen in order.split(args.batch):
            trainer.train_step(shard["x"][chosen].to(device), shard["y"][chosen].to(device))
            if trainer.num_updates % args.save_every == 0:
                trainer.save(Path("checkpoints"))
                error = trainer.evaluate(held_out.to(device), held_out_target.to(device))
                if trainer.rank == 0:
                    print(f"epoch {epoch} update {trainer.num_updates} held-out error {error:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
