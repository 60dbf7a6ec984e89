"""Gradients that wait to be averaged, cheap ones first so that the optimizer can start early."""
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Item:
    name: str
    grad: torch.Tensor
    group: object
    rows: int


class ReduceQueue:
    def __init__(self):
        self.items = []

    def put(self, name, grad, group, rows=None):
        self.items.append(Item(name, grad, group, len(grad) if rows is None else rows))

    def flush(self):
        done = {}
        for item in sorted(self.items, key=lambda i: i.rows):
            dist.all_reduce(item.grad, group=item.group)
            done[item.name] = item.grad
        self.items.clear()
        return done
