"""Patterns as tensors, and the comparison to the bit."""

from dataclasses import dataclass

import torch
from torch import Tensor

from forkpoint.lab.collectives.patterns import POISON, Values, as_bits


@dataclass(frozen=True, slots=True)
class Buffers:
    """What tensors of one test are made of."""

    dtype: torch.dtype
    device: torch.device

    def of(self, values: Values) -> Tensor:
        held = as_bits(values) if self.dtype is torch.bool else values
        return torch.from_numpy(held).to(self.dtype).to(self.device)

    def poisoned(self, expected: Tensor) -> Tensor:
        """Room for a result, holding what is wrong everywhere."""
        return ~expected if self.dtype is torch.bool else torch.full_like(expected, POISON)


@dataclass(frozen=True, slots=True)
class Mismatch:
    element: int
    wrong: int
    expected: str
    got: str


def compare(got: Tensor, expected: Tensor) -> Mismatch | None:
    """By their bytes: -0.0 is not 0.0, and a NaN is what it is."""
    if not got.numel() or torch.equal(got.view(torch.uint8), expected.view(torch.uint8)):
        return None
    size = got.element_size()
    odd = (got.view(torch.uint8) != expected.view(torch.uint8)).view(-1, size).any(dim=1).nonzero().flatten()
    at = int(odd[0])
    return Mismatch(at, len(odd), str(expected[at].item()), str(got[at].item()))


def flip_bit(tensor: Tensor) -> None:
    """The lowest of the element in the middle."""
    at = tensor.numel() // 2 * tensor.element_size()
    tensor.view(torch.uint8)[at] ^= 1


def lose_last(tensor: Tensor, before: Tensor) -> None:
    tensor[-1:] = before[-1:]
