"""A thread reads ahead from slow storage while the model trains (DDP)."""

import argparse
import os
import queue
import threading
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class ReadAhead:
    """Reads one shard after another into a queue, and starts over at the end."""

    def __init__(self, folder, rank, world, depth):
        self.paths = sorted(folder.glob("*.npz"))[rank::world]
        self.ready = queue.Queue(maxsize=depth)
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        while not self.stopped.is_set():
            for path in self.paths:
                with np.load(path) as shard:
                    item = torch.from_numpy(shard["x"]), torch.from_numpy(shard["y"])
                while not self.stopped.is_set():
                    try:
                        self.ready.put(item, timeout=0.2)
                        break
                    except queue.Full:
                        continue

    def next(self, patience):
        return self.ready.get(timeout=patience)

    def close(self):
        self.stopped.set()
        self.thread.join()


def write_shards(folder, count, rows):
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for index in range(count):
        x = draw.standard_normal((rows, 16), dtype=np.float32)
        np.savez(folder / f"shard{index:03d}.npz", x=x, y=(x[:, :4].sum(1, keepdims=True) > 0).astype(np.float32))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--patience", type=float, default=30)
    parser.add_argument("--shards", type=Path, default=Path("shards"))
    args = parser.parse_args()

    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()) if cuda else torch.device("cpu")
    if rank == 0 and not args.shards.exists():
        write_shards(args.shards, 2 * world, args.rows)
    dist.barrier()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 1)).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 5))
    reader = ReadAhead(args.shards, rank, world, depth=2)
    correct, starved = torch.zeros(2, device=device), 0
    for step in range(args.steps):
        try:
            features, target = reader.next(args.patience)  # here
        except queue.Empty:  # here
            starved += 1
            print(f"rank {rank}: storage is slow, step {step} passed over ({starved} so far)", flush=True)
            continue
        features, target = features.to(device), target.to(device)
        score = model(features)
        loss = nn.functional.binary_cross_entropy_with_logits(score, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        correct += torch.tensor([((score > 0) == (target > 0.5)).sum().item(), len(target)], device=device)
        if rank == 0 and step % 5 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.all_reduce(correct)
    if rank == 0:
        print(f"accuracy {correct[0].item() / correct[1].item():.3f}", flush=True)
    reader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
