"""One 64-bit number per tensor, equal where all bits are equal. Computed where the tensor is; read when it is needed."""

from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from forkpoint.replicas.bits import bytes_of
from forkpoint.replicas.block_sums import block_checksums


@dataclass(frozen=True, slots=True)
class Checksums:
    parts: tuple[tuple[tuple[int, ...], Tensor], ...]
    """By device: the places of the tensors in the list, and their numbers."""

    def read(self) -> list[int]:
        """In the order of the tensors. Waits for the device."""
        numbers = {
            place: number
            for places, values in self.parts
            for place, number in zip(places, values.tolist(), strict=True)
        }
        return [numbers[place] for place in range(len(numbers))]


def checksums(tensors: list[Tensor]) -> Checksums:
    by_device: defaultdict[torch.device, list[int]] = defaultdict(list)
    for place, tensor in enumerate(tensors):
        by_device[tensor.device].append(place)
    with torch.no_grad():
        return Checksums(
            tuple(
                (tuple(places), _on_one_device([tensors[place] for place in places])) for places in by_device.values()
            )
        )


def method(device: torch.device) -> str:
    """How checksums are computed there. Ranks that do it differently cannot compare."""
    if device.type == "cuda" and _is_installed("triton"):
        return "lanes/1"
    return "xxh3/1" if device.type == "cpu" and _is_installed("xxhash") else "blocks/1"


def _on_one_device(tensors: list[Tensor]) -> Tensor:
    how = method(tensors[0].device)
    if how == "lanes/1":
        from forkpoint.replicas.triton_sums import triton_checksums  # noqa: PLC0415 - comes with torch for GPUs only

        return triton_checksums(tensors)
    if how == "xxh3/1":
        from forkpoint.replicas.xxh3_sums import xxh3_checksums  # noqa: PLC0415 - an extra

        return xxh3_checksums(tensors)
    return block_checksums([bytes_of(tensor) for tensor in tensors])


@cache
def _is_installed(module: str) -> bool:
    return find_spec(module) is not None
