"""Splits on disk: made once by the main process."""
import os
import torch
import torch.distributed as dist


class Prepared:
    def __init__(self, folder, rank):
        self.folder, self.rank = folder, rank
        os.makedirs(folder, exist_ok=True)

    def build(self, path, name):
        table = torch.arange(64 * 32, dtype=torch.float32).reshape(64, 32) / len(name)
        torch.save(table, path + ".part")
        os.replace(path + ".part", path)

    def get(self, name):
        path = os.path.join(self.folder, name + ".pt")
        if self.rank != 0:
            dist.barrier()  # wait until the main process has written it
        if os.path.exists(path):
            return torch.load(path)
        self.build(path, name)
        if self.rank == 0:
            dist.barrier()
        return torch.load(path)
