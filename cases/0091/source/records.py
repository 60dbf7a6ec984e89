"""Tokens with a padding mask, read shard by shard."""
import torch

TRUNCATED = {(3, 10), (1, 23)}  # records whose text was lost in the last export


class Shard:
    def __init__(self, number, rows=6, width=40):
        self.number, self.rows, self.width = number, rows, width

    def __getitem__(self, index):
        gen = torch.Generator().manual_seed(1000 * self.number + index)
        x = torch.randn(self.rows, self.width, generator=gen)
        kept = torch.ones(self.rows)
        kept[int(torch.randint(2, self.rows, (1,), generator=gen)) :] = 0
        if (self.number, index) in TRUNCATED:
            kept.zero_()
        return x, kept
