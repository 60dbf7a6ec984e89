"""Documents as character counts."""
import re
import torch

SENTENCE = re.compile(r"^(\w+\s?)*\.$")


def document(rank, step):
    words = ["token"] * 12
    if rank == 1 and step == 5:
        words = ["identifier" + "x" * 20] * 3 + ["{}"]  # source code in the text dump
    return " ".join(words) + "."


def features(text):
    counts = torch.zeros(1, 256)
    for ch in text:
        counts[0, ord(ch) % 256] += 1
    if SENTENCE.match(text):
        counts[0, 0] = 1
    return counts


class TextStream:
    def __init__(self, rank, steps):
        self.rank, self.steps = rank, steps

    def __iter__(self):
        for step in range(self.steps):
            yield features(document(self.rank, step))
