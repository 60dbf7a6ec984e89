"""Held-out accuracy."""
import torch
import torch.distributed as dist


class Tally:
    def __init__(self, classes, device):
        self.hits = torch.zeros(classes, device=device)
        self.seen = torch.zeros(classes, device=device)

    def add(self, guess, label):
        self.seen.index_add_(0, label, torch.ones_like(label, dtype=torch.float))
        self.hits.index_add_(0, label, (guess == label).float())

    def totals(self):
        both = torch.stack([self.hits, self.seen])
        parts = [torch.empty_like(both) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, both)
        both = torch.stack(parts).sum(0)
        return both[0].sum() / both[1].sum().clamp(min=1)


class Evaluator:
    def __init__(self, classes, batches, device):
        self.classes, self.batches, self.device = classes, batches, device

    @torch.no_grad()
    def run(self, net):
        tally = Tally(self.classes, self.device)
        net.eval()
        for number in range(self.batches):
            gen = torch.Generator().manual_seed(number)
            x = torch.randn(16, 24, generator=gen).to(self.device)
            label = torch.randint(0, self.classes, (16,), generator=gen).to(self.device)
            tally.add(net(x).argmax(1), label)
        net.train()
        return tally.totals().item()
