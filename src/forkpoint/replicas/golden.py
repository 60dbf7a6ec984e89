"""A computation whose right result is known to the bit: whole numbers, small enough that no order of adding rounds."""

import torch
import torch.distributed as dist
from torch import Tensor

_SIZE = 512
_LARGEST = 15
"""512 * 15 * 15 is below 2**24: exact in float32 however it is added, and the factors are exact in bf16 and TF32."""
_DTYPES = (torch.float32, torch.bfloat16)


def golden_gemm(device: torch.device) -> list[Tensor]:
    """What differs from the right product, in each dtype. All zeros on a device that works."""
    left, right = (_whole_numbers(seed) for seed in (1, 2))
    exact = (left @ right).to(device)
    found: list[Tensor] = []
    for dtype in _DTYPES:
        product = left.to(device, dtype) @ right.to(device, dtype)
        found.append(product.to(torch.float32) - exact.to(dtype).to(torch.float32))
    return found


def golden_sum(device: torch.device, group: dist.ProcessGroup) -> list[Tensor]:
    """What an all-reduce of a known pattern differs by from its sum."""
    found: list[Tensor] = []
    for dtype in _DTYPES:
        pattern = (torch.arange(1 << 16, device=device) % 61).to(dtype)
        total = pattern.clone()
        dist.all_reduce(total, group=group)
        found.append((total - pattern * group.size()).to(torch.float32))
    return found


def _whole_numbers(seed: int) -> Tensor:
    """On the host, as int64: the reference is not computed by what is tested."""
    source = torch.Generator().manual_seed(seed)
    return torch.randint(-_LARGEST, _LARGEST + 1, (_SIZE, _SIZE), generator=source)
