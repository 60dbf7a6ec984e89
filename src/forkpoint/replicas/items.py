"""What is compared, and who holds a copy of it."""

import hashlib
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from forkpoint.replicas.checksums import method
from forkpoint.replicas.report import What

Ranks = tuple[int, ...]
Scalar = float | int | bool | Tensor
"""A tensor of one element is read when it is compared."""


@dataclass(frozen=True, slots=True)
class Item:
    what: What
    name: str
    tensor: Tensor
    """Local: what this rank holds."""
    ranks: Ranks
    """Who holds the same, this rank included."""

    @property
    def key(self) -> tuple[What, str, Ranks]:
        return self.what, self.name, self.ranks

    @property
    def layout(self) -> str:
        kind = str(self.tensor.dtype).removeprefix("torch.")
        return f"{self.what} {self.name} {kind}{list(self.tensor.shape)} {method(self.tensor.device)}"

    @property
    def bytes(self) -> int:
        return self.tensor.numel() * self.tensor.element_size()


def by_ranks(items: Iterable[Item]) -> dict[Ranks, list[Item]]:
    """Sets of ranks in the same order everywhere: members of several meet in that order. One rank has no replica."""
    found: defaultdict[Ranks, list[Item]] = defaultdict(list)
    for item in items:
        if len(item.ranks) > 1:
            found[item.ranks].append(item)
    return dict(sorted(found.items()))


def scalar_items(scalars: Mapping[str, Scalar], ranks: Ranks) -> list[Item]:
    return [Item(What.SCALAR, name, _number(scalars[name]), ranks) for name in sorted(scalars)]


def _number(value: Scalar) -> Tensor:
    return value.detach() if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)


def layout_number(item: Item) -> int:
    return _digest(item.layout.encode())


def digest(numbers: Iterable[int]) -> int:
    """Of a list of 64-bit numbers, again a 64-bit number."""
    values = list(numbers)
    return _digest(struct.pack(f"<{len(values)}q", *values))


def _digest(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little", signed=True)
