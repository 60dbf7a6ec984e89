"""Token files dealt out to the ranks."""
import torch

LINES = 7 * 4 * 16 - 5  # lines in the corpus
BATCH = 16


class TokenFiles:
    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.lines = range(LINES)[rank * 7 * BATCH : (rank + 1) * 7 * BATCH]

    def __len__(self):
        return len(self.lines) // BATCH

    def __iter__(self):
        for i in range(len(self)):
            start = self.lines[i * BATCH]
            yield (torch.arange(start, start + BATCH * 64) * 7919) % 32000
