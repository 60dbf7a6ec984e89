"""Documents as rows of ids; weights per document come from a side table."""
import torch


class SideTable:
    def __init__(self, shard):
        self.weights = {n: 0.5 + (n * 7 + shard) % 5 / 4 for n in range(200)}
        if shard == 3:
            del self.weights[34]  # never scored

    def lookup(self, numbers):
        return torch.tensor([self.weights[n] for n in numbers])


class Corpus:
    def __init__(self, shard, rows=4):
        self.table, self.rows, self.shard = SideTable(shard), rows, shard

    def batch(self, step):
        gen = torch.Generator().manual_seed(self.shard * 997 + step)
        numbers = list(range(step * self.rows, (step + 1) * self.rows))
        ids = torch.randint(0, 100, (self.rows, int(torch.randint(6, 20, (1,), generator=gen))), generator=gen)
        return numbers, ids
