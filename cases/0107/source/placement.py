"""Which rank holds which expert; rebalanced by load from time to time."""
import torch


class Placement:
    def __init__(self, experts, world):
        self.experts, self.world = experts, world
        self.owner = torch.arange(experts) * world // experts
        self.load = torch.zeros(experts)

    def count(self, routed):
        self.load += torch.bincount(routed, minlength=self.experts).float()

    def rebalance(self):
        """Give the heaviest expert of the fullest rank to the rank with the lightest load, in exchange for one."""
        per_rank = torch.zeros(self.world).index_add_(0, self.owner, self.load)
        full, idle = int(per_rank.argmax()), int(per_rank.argmin())
        if per_rank[full] > 1.5 * per_rank[idle]:
            give = max((e for e in range(self.experts) if self.owner[e] == full), key=lambda e: self.load[e])
            take = min((e for e in range(self.experts) if self.owner[e] == idle), key=lambda e: self.load[e])
            self.owner[give], self.owner[take] = idle, full
        self.load.zero_()
        return self.owner.tolist()

    def by_rank(self, counts):
        return torch.zeros(self.world, dtype=torch.long).index_add_(0, self.owner, counts).tolist()
