"""Named sums over steps and ranks."""
import torch.distributed as dist


class Statistics:
    def __init__(self, device):
        self.device = device
        self.sums = {}
        self.changed = set()

    def add(self, key, value):
        self.sums[key] = self.sums[key] + value if key in self.sums else value.clone()
        self.changed.add(key)

    def reduced(self):
        """Sum what changed since the last call over all ranks."""
        out = {}
        for key in self.changed:
            total = self.sums[key].clone()
            dist.all_reduce(total)
            out[key] = total
        self.changed = set()
        return out
