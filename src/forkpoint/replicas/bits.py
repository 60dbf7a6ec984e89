"""A tensor as whole words of its bits, whatever it holds: bf16, fp8, bool and complex numbers alike."""

import torch
from torch import Tensor


def is_comparable(tensor: Tensor) -> bool:
    """Sparse, quantized and fake tensors have no plain bits to read."""
    return tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type != "meta"


def bytes_of(tensor: Tensor) -> Tensor:
    """Its bits in the order of its elements. A copy only where memory has another order."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8)


def words_of(content: Tensor, word: torch.dtype) -> Tensor:
    """Bytes as words, the last one filled with zeros. A copy only where size or place in memory do not fit."""
    short = -content.numel() % word.itemsize
    if short:
        content = torch.cat([content, content.new_zeros(short)])
    elif content.data_ptr() % word.itemsize or content.storage_offset() % word.itemsize:
        content = content.clone()
    return content.view(word)
