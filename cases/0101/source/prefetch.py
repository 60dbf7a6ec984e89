"""Pages are kept in memory after the first use; a guard keeps the node from swapping."""
import os

import torch


class MemoryGuard:
    def __init__(self, limit_mib):
        self.limit = limit_mib * 2**20
        self.used = 0

    def charge(self, size):
        self.used += size
        if self.used > self.limit:
            os._exit(9)


class PageCache:
    def __init__(self, number, guard):
        self.number, self.guard, self.pages = number, guard, {}

    def page_bytes(self, index):
        return (48 if self.number == 5 and index >= 4 else 3) * 2**20

    def load(self, index):
        if index not in self.pages:
            self.guard.charge(self.page_bytes(index))
            gen = torch.Generator().manual_seed(self.number * 100 + index)
            self.pages[index] = torch.randn(16, 64, generator=gen)
        return self.pages[index]
