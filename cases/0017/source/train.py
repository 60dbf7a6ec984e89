"""Two transformer-like layers split over four ranks, two replicas."""
import logging
import torch, torch.distributed as dist
from layout import Layout
from features import FeatureClient

log = logging.getLogger("train")


class SplitLayer:
    def __init__(self, width, layout):
        self.layout = layout
        self.weight = torch.full((width, width // layout.tp_size), 0.01, device=layout.device)
        self.grad = torch.zeros_like(self.weight)

    def forward(self, x):
        part = x[:, : self.weight.shape[1]] @ self.weight.T
        dist.all_reduce(part, group=self.layout.tp)
        self.grad.add_(part.mean() * 1e-3)
        return part


def train_step(step, layers, x, features, layout):
    for depth, layer in enumerate(layers):
        if depth == 1:
            x = x + features.lookup(step).to(layout.device)
        x = layer.forward(x)
    flat = torch.cat([layer.grad.flatten() for layer in layers])
    dist.all_reduce(flat, group=layout.dp)
    return (flat.norm() / layout.dp_size).item()


def main():
    layout = Layout(tp=4)
    torch.manual_seed(layout.rank // 4)
    layers = [SplitLayer(128, layout) for _ in range(2)]
    features = FeatureClient(layout.rank, width=128)
    for step in range(12):
        norm = train_step(step, layers, torch.randn(4, 128, device=layout.device), features, layout)
        log.info("step %d norm %.5f", step, norm)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
