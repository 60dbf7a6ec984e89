"""Running means of named numbers, averaged over all ranks when flushed."""
import torch
import torch.distributed as dist

_values = {}


def add(name, value):
    _values.setdefault(name, []).append(value.detach())


def flush(device):
    numbers = {}
    for name in sorted(_values):
        mean = torch.stack(_values[name]).mean().reshape(1).to(device)
        dist.all_reduce(mean)
        numbers[name] = round(mean.item() / dist.get_world_size(), 4)
    _values.clear()
    return numbers
