"""Four replicas of a model split in two; the host runs ahead of the device between reports."""
import logging
import torch, torch.distributed as dist

from groups import make_groups
from shards import ShardCache

log = logging.getLogger("train")
REPORT_EVERY = 10


class SplitMlp:
    """Column-parallel, then row-parallel, twice."""

    def __init__(self, groups, width=128, depth=2):
        self.groups = groups
        part = width // groups.tp_size
        self.up = [torch.full((width, part), 0.01, device=groups.device) for _ in range(depth)]
        self.down = [torch.full((part, width), 0.01, device=groups.device) for _ in range(depth)]

    def forward(self, x):
        for up, down in zip(self.up, self.down):
            y = torch.relu(x @ up) @ down
            dist.all_reduce(y, group=self.groups.tp)
            x = x + y
        return x

    def backward(self, x):
        grads = torch.stack([x.mean() * weight for weight in self.up])
        dist.all_reduce(grads, group=self.groups.dp)
        for weight, grad in zip(self.up, grads):
            weight -= 1e-4 * grad


def main():
    groups = make_groups(tp_size=2)
    model = SplitMlp(groups)
    cache = ShardCache(groups.rank, rows=80)
    for step in range(60):
        x = cache.batch(step).to(groups.device, non_blocking=True)
        y = model.forward(x)
        model.backward(y)
        if step % REPORT_EVERY == REPORT_EVERY - 1:
            log.info("step %d mean %.6f", step, y.mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
