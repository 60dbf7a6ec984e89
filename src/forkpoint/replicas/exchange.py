"""Numbers, told to the other holders over a group of its own, so that the job's communicators are not touched."""

from collections.abc import Sequence
from datetime import timedelta
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from forkpoint.replicas.items import Ranks

_PARTS = 1 << 20
"""Numbers told at once."""

_groups: WeakKeyDictionary[dist.ProcessGroup, dict[tuple[Ranks, timedelta], dist.ProcessGroup]] = WeakKeyDictionary()


class Exchange:
    """Over gloo: the numbers are needed on the host, and a GPU that hangs must not hide what differs."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout = timedelta(seconds=timeout_s)

    def gather(self, ranks: Ranks, numbers: Sequence[int]) -> list[list[int]]:
        """Of all members, in the order of `ranks`. All give equally many."""
        group = self._group(ranks)
        gathered: list[list[int]] = [[] for _ in ranks]
        for first in range(0, len(numbers), _PARTS):
            own = torch.tensor(numbers[first : first + _PARTS], dtype=torch.int64, device="cpu")
            parts = [torch.empty_like(own) for _ in ranks]
            dist.all_gather(parts, own, group=group)
            for row, part in zip(gathered, parts, strict=True):
                row.extend(part.tolist())
        return gathered

    def gather_uneven(self, ranks: Ranks, numbers: Sequence[int]) -> list[list[int]]:
        """Where members may have different numbers of them."""
        counts = [count for (count,) in self.gather(ranks, [len(numbers)])]
        filled = [*numbers, *[0] * (max(counts) - len(numbers))]
        return [row[:count] for row, count in zip(self.gather(ranks, filled), counts, strict=True)]

    def _group(self, ranks: Ranks) -> dist.ProcessGroup:
        """Made by its members alone, on first use: everybody comes to their sets in the same order.

        And kept as long as the job's world: gloo would meet the addresses of a group that was given back.
        """
        world = dist.group.WORLD
        assert world is not None
        known = _groups.setdefault(world, {})
        if (ranks, self._timeout) not in known:
            group = dist.new_group(
                list(ranks),
                timeout=self._timeout,
                backend="gloo",
                use_local_synchronization=len(ranks) < world.size(),
                group_desc="forkpoint replicas",
            )
            assert isinstance(group, dist.ProcessGroup)  # this rank is in it
            known[ranks, self._timeout] = group
        return known[ranks, self._timeout]
