"""Four pipeline stages by hand: activations forwards, gradients backwards, micro-batch by micro-batch."""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 32
CLASSES = 6


class Stage(nn.Module):
    def __init__(self, index, last):
        super().__init__()
        torch.manual_seed(10 + index)
        self.body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, CLASSES if last else WIDTH))

    def forward(self, hidden):
        return self.body(hidden)


class Samples(torch.utils.data.Dataset):
    """Rows of a memory-mapped file, which the first stage (features) and the last stage (labels) read."""

    def __init__(self, path, rows):
        if not path.exists():
            draw = torch.Generator().manual_seed(1)
            features = torch.randn(rows, WIDTH, generator=draw)
            part = path.with_suffix(f".{os.getpid()}")
            torch.save({"x": features, "y": features[:, :CLASSES].argmax(1)}, part)
            part.rename(path)
        stored = torch.load(path, mmap=True, weights_only=True)
        self.features, self.labels = stored["x"], stored["y"]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.features[index], self.labels[index]


class Pipeline:
    def __init__(self, args, device):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.first, self.last = self.rank == 0, self.rank == self.world - 1
        self.micro, self.per_step, self.device = args.micro, args.batch // args.micro, device
        self.stage = Stage(self.rank, self.last).to(device)
        self.optimizer = torch.optim.SGD(self.stage.parameters(), lr=0.05)

    def receive(self, peer):
        buffer = torch.empty(self.micro, WIDTH, device=self.device)
        dist.recv(buffer, peer)
        return buffer

    def rows(self, values):
        """Micro-batches of the agreed number and size, whatever the loader gave."""
        missing = self.micro * self.per_step - len(values)
        if missing:
            values = torch.cat([values, values.new_zeros(missing, *values.shape[1:])])
        return values.to(self.device).split(self.micro)

    def pieces(self, batch):
        """What this stage works on: rows of the batch at either end, room for activations between."""
        if self.first:
            return self.rows(batch[0])
        if self.last:
            return self.rows(batch[1])
        return [None] * self.per_step

    def step(self, batch):
        kept, total = [], 0.0
        for piece in self.pieces(batch):
            entry = piece if self.first else self.receive(self.rank - 1).requires_grad_()
            result = self.stage(entry)
            if self.last:
                result = nn.functional.cross_entropy(result, piece) / self.per_step
                total += result.item()
            else:
                dist.send(result.detach(), self.rank + 1)
            kept.append((entry, result))
        self.optimizer.zero_grad()
        for entry, result in kept:
            if self.last:
                result.backward()
            else:
                result.backward(self.receive(self.rank + 1))
            if not self.first:
                dist.send(entry.grad, self.rank - 1)
        nn.utils.clip_grad_norm_(self.stage.parameters(), 1.0)
        self.optimizer.step()
        return total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--micro", type=int, default=8)
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if cuda else torch.device("cpu")
    pipeline = Pipeline(args, device)
    loader = [None] * args.steps
    if pipeline.first or pipeline.last:
        data = Samples(Path("samples.pt"), args.steps * args.batch)
        loader = torch.utils.data.DataLoader(data, args.batch, shuffle=True, generator=torch.Generator().manual_seed(4))
    for step, batch in enumerate(loader):
        loss = pipeline.step(batch)
        if pipeline.last:
            print(f"step {step} loss {loss:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
