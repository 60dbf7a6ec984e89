"""Tokens of one shard; shards differ in size."""
import torch


class TokenShard:
    def __init__(self, number):
        self.gen = torch.Generator().manual_seed(number)
        self.batches = 18 + 3 * (number % 4)

    def __len__(self):
        return self.batches

    def __iter__(self):
        for _ in range(self.batches):
            rows = int(torch.randint(40, 90, (1,), generator=self.gen))
            yield torch.randn(rows, 48, generator=self.gen), torch.randint(0, 8, (rows,), generator=self.gen)
