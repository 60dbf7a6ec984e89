"""A dense tower over a table of items."""
import torch


class TwoPart:
    def __init__(self, device):
        gen = torch.Generator().manual_seed(9)
        self.table = (torch.randn(600, 32, generator=gen) * 0.1).to(device)
        self.tower = (torch.randn(120, 32, generator=gen) * 0.1).to(device)

    def gradients(self, ids):
        rows = self.table[ids]
        hidden = torch.tanh(rows @ self.tower.T)
        tower = hidden.T @ rows / len(ids)
        table = torch.zeros_like(self.table).index_add_(0, ids, hidden @ self.tower / len(ids))
        return tower, table

    def apply(self, grads, lr):
        self.tower -= lr * grads["tower"]
        self.table -= lr * grads["table"]


def draw(rank, step, device):
    gen = torch.Generator().manual_seed(300 * rank + step)
    upper = 600 if (rank, step) == (1, 7) else 40  # most sessions stay within the popular items
    return torch.randint(0, upper, (256,), generator=gen).to(device)
