"""Which records of the shard end up in which batch."""
import random


class Clips:
    """Lengths of the clips of one shard, as the index lists them."""

    def __init__(self, shard, count=72):
        rng = random.Random(shard)
        self.seconds = [rng.uniform(1.0, 9.0) for _ in range(count)]
        if shard == 5:
            self.seconds[10:22] = [31.0 + i for i in range(12)]  # a whole lecture


class LengthBatches:
    def __init__(self, clips, rows, longest, seed):
        self.clips, self.rows, self.longest, self.seed = clips, rows, longest, seed

    def __len__(self):
        return len(self.clips.seconds) // self.rows

    def usable(self):
        return [i for i, s in enumerate(self.clips.seconds) if s <= self.longest]

    def epoch(self, number):
        order = self.usable()
        random.Random(self.seed + number).shuffle(order)
        for start in range(0, len(order) - self.rows + 1, self.rows):
            yield order[start : start + self.rows]
