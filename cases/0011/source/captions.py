"""Batches of caption embeddings; captions that are too short are dropped."""
import torch

MIN_WORDS = 4


class CaptionBatches:
    def __init__(self, rank, device, steps):
        self.rank, self.device, self.steps = rank, device, steps

    def words(self, step, gen):
        lengths = torch.randint(3, 12, (12,), generator=gen)
        if self.rank == 1 and step == 5:
            lengths = lengths.clamp(max=3)  # a page of one-line tags
        return lengths

    def __iter__(self):
        for step in range(self.steps):
            gen = torch.Generator().manual_seed(17 * self.rank + step)
            keep = self.words(step, gen) >= MIN_WORDS
            embedded = torch.randn(12, 80, generator=gen)[keep]
            yield embedded.to(self.device) if len(embedded) else None
