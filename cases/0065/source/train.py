"""Tensor and data parallel training of sixteen ranks; samples come from a queue."""
import logging
import torch, torch.distributed as dist
from layout import Layout
from samples import Samples

log = logging.getLogger("train")


def main():
    layout = Layout(tp=4)
    weight = torch.full((256,), 0.1, device=layout.device)
    samples = Samples(layout.rank)
    for step in range(20):
        x = torch.full((256,), samples.next(), device=layout.device)
        y = x * weight
        dist.all_reduce(y, group=layout.tp)
        grad = torch.tanh(y)
        dist.all_reduce(grad, group=layout.dp)
        weight -= 1e-3 * grad / layout.dp_size
        log.info("step %d weight %.5f", step, weight.mean().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
