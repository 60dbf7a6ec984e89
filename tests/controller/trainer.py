"""A trainer that can go wrong on one rank, for ranks of a real job."""

import os
import time

import torch
import torch.distributed as dist

ODD = 1


class Trainer:
    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.rank = dist.get_rank()
        self.value = torch.ones(4)
        self.pending: list[object] = []
        self.pair = dist.new_group(list(range(min(2, dist.get_world_size()))))

    def step(self, number: int) -> tuple[int, float]:
        total = torch.full((4,), float(number))
        dist.all_reduce(total)
        return self.rank, total[0].item()

    def pass_along(self) -> None:
        """A pipeline: the rank in the middle sends and receives, the others do one of both. One group has two members."""
        if self.rank > 0:
            dist.recv(self.value, self.rank - 1)
        if self.rank < dist.get_world_size() - 1:
            dist.send(self.value, self.rank + 1)
        if self.rank < 2:
            dist.all_reduce(self.value, group=self.pair)

    def skip_one(self) -> None:
        if self.rank != ODD:
            self.pending.append(dist.all_reduce(self.value, async_op=True))

    def take_other_type(self) -> None:
        """As many bytes: gloo delivers them, and they mean nothing."""
        dist.broadcast(self.value.int() if self.rank == ODD else self.value, src=0)

    def fail_on_one(self) -> None:
        if self.rank == ODD:
            raise ValueError("bad batch")
        dist.all_reduce(self.value)

    def exit_on_one(self) -> None:
        if self.rank == ODD:
            os._exit(7)
        dist.all_reduce(self.value)

    def stall_on_one(self) -> None:
        if self.rank == ODD:
            time.sleep(600)
        dist.all_reduce(self.value)
