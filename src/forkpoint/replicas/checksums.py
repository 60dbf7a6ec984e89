"""One 64-bit checksum per tensor, equal if all bits are equal."""

import ctypes
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

# ---------------------------------------------------------------------------------------------------------------------
# A tensor's bits as 64-bit words, for any dtype: bf16, fp8, bool and complex numbers alike.


def is_comparable(tensor: Tensor) -> bool:
    """Sparse, quantized and fake tensors have no plain bits to read."""
    return tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type != "meta"


def bytes_of(tensor: Tensor) -> Tensor:
    """Its bytes in the order of its elements. Copies only if memory has another order."""
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return plain.reshape(-1).view(torch.uint8)


def words_of(content: Tensor, word: torch.dtype) -> Tensor:
    """Bytes as words, the last one padded with zeros. Copies only if size or alignment do not fit."""
    short = -content.numel() % word.itemsize
    if short:
        content = torch.cat([content, content.new_zeros(short)])
    elif content.data_ptr() % word.itemsize or content.storage_offset() % word.itemsize:
        content = content.clone()
    return content.view(word)


# ---------------------------------------------------------------------------------------------------------------------
# Checksums with torch's own operations, for CPUs and for devices without Triton.
#
# A tensor's words are laid out in blocks of rows and columns, and every row and every column is summed. Integer sums
# wrap, so the order does not matter, and the block is in the cache when it is read for the second time. Each sum is then
# mixed with its position, and the mixed sums are added up.
#
# A difference in one or two words always changes at least two sums, and is then missed with a chance of 2**-64. The same
# holds for any other difference that changes some sum of a row or column. A rectangle of changes that cancel out changes
# none; the odd row length prevents that for regular patterns. A plain sum would miss swapped elements, and multiplication
# alone would miss swapped signs, since the topmost bit of a product cannot carry further.

COLUMNS, ROWS = 1023, 65
"""Odd, so that no power of two divides them; 520 KiB per block, which fits a core's cache."""
_WIDTH = COLUMNS + ROWS
_FEW_ROWS = 8
"""Below this size sums save no work: the words themselves are mixed."""
_PIECES = 32
"""Mixed at once: enough to amortise a call, and few enough for the cache."""
_FACTORS = (0x1CE4E5B9BF58476D, 0x133111EB94D049BB)
_STEP = 0x9E3779B97F4A7C15


def block_checksums(contents: list[Tensor]) -> Tensor:
    """One int64 per tensor of bytes, all on one device."""
    device = contents[0].device
    mixer = _Mixer(device, len(contents), torch.get_num_threads() if device.type == "cpu" else _PIECES)
    for owner, content in enumerate(contents):
        _add(mixer, owner, words_of(content, torch.int64))
    mixer.flush()
    return mixer.total


def _add(mixer: "_Mixer", owner: int, words: Tensor) -> None:
    """In numbered pieces: blocks count upwards, unsummed words downwards."""
    bare = words
    if words.numel() >= _FEW_ROWS * COLUMNS:
        rows = words.numel() // COLUMNS
        blocks, rest = divmod(rows, ROWS)
        summed = blocks * ROWS * COLUMNS
        mixer.add_blocks(owner, words[:summed].view(blocks, ROWS, COLUMNS))
        if rest:
            mixer.add_rest(owner, blocks, words[summed : rows * COLUMNS].view(rest, COLUMNS))
        bare = words[rows * COLUMNS :]
    for number, piece in enumerate(bare.split(_WIDTH)):
        mixer.add_words(owner, -1 - number, piece)


class _Mixer:
    """Collects pieces until there are enough, then mixes every value with its position and adds them up."""

    def __init__(self, device: torch.device, tensors: int, at_once: int) -> None:
        self.total = torch.zeros(tensors, dtype=torch.int64, device=device)
        self._at_once = at_once
        self._keys = _mixed(torch.arange(_WIDTH, device=device) * _signed(_STEP))
        self._pieces = torch.empty(max(_PIECES, at_once), _WIDTH, dtype=torch.int64, device=device)
        self._owners: list[int] = []
        self._seeds: list[int] = []

    def add_blocks(self, owner: int, blocks: Tensor) -> None:
        first = 0
        while first < len(blocks):
            part = blocks[first : first + max(self._at_once, len(self._pieces) - len(self._owners))]
            place = self._take(owner, first, len(part))
            room = self._pieces[place : place + len(part)]
            parts = [part, room[:, :COLUMNS], room[:, COLUMNS:]]
            # On a CPU as many at a time as there are threads.
            cut = [one.unbind() if self._at_once == 1 else one.split(self._at_once) for one in parts]
            for block, by_column, by_row in zip(*cut, strict=True):
                torch.sum(block, -2, out=by_column)
                torch.sum(block, -1, out=by_row)
            first += len(part)

    def add_rest(self, owner: int, number: int, rows: Tensor) -> None:
        room = self._pieces[self._take(owner, number)].zero_()
        torch.sum(rows, 0, out=room[:COLUMNS])
        torch.sum(rows, 1, out=room[COLUMNS : COLUMNS + len(rows)])

    def add_words(self, owner: int, number: int, words: Tensor) -> None:
        self._pieces[self._take(owner, number)].zero_()[: words.numel()] = words

    def flush(self) -> None:
        if not self._owners:
            return
        told = torch.tensor([self._owners, self._seeds], device=self.total.device)
        values = self._pieces[: len(self._owners)]
        values ^= self._keys
        values += told[1, :, None]
        self.total.index_add_(0, told[0], _mixed(values).sum(1))
        self._owners, self._seeds = [], []

    def _take(self, owner: int, number: int, count: int = 1) -> int:
        """Where the next pieces go."""
        if len(self._owners) + count > len(self._pieces):
            self.flush()
        place = len(self._owners)
        self._owners += [owner] * count
        self._seeds += [_signed((2 * (number + further) + 1) * _STEP) for further in range(count)]
        return place


def _mixed(values: Tensor) -> Tensor:
    """In place: changing any bit changes about half of them. Only a value and its complement give the same result."""
    shifted = torch.empty_like(values)
    for factor in _FACTORS:
        values ^= torch.bitwise_right_shift(values, 32, out=shifted)
        values *= factor
    values ^= torch.bitwise_right_shift(values, 32, out=shifted)
    return values


def _signed(value: int) -> int:
    """Modulo 2**64, as int64."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


# ---------------------------------------------------------------------------------------------------------------------
# Checksums on a CPU by xxHash (XXH3, 64 bits), which is faster than torch's sums.


def xxh3_checksums(tensors: list[Tensor]) -> Tensor:
    """One int64 per tensor, all on the CPU. Needs the extra `replicas`."""
    import xxhash  # noqa: PLC0415 - an extra

    numbers = [xxhash.xxh3_64_digest(_memory(content)) for content in map(bytes_of, tensors)]
    return torch.frombuffer(bytearray(b"".join(numbers)), dtype=torch.int64)


def _memory(content: Tensor) -> "ctypes.Array[ctypes.c_char]":
    """The bytes in place, without a copy. Valid as long as `content`, which the caller holds."""
    return (ctypes.c_char * content.numel()).from_address(content.data_ptr())


# ---------------------------------------------------------------------------------------------------------------------
# Checksums of many tensors: computed on each tensor's device, read when needed.


@dataclass(frozen=True, slots=True)
class Checksums:
    parts: tuple[tuple[tuple[int, ...], Tensor], ...]
    """By device: the indexes of its tensors in the list, and their checksums."""

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
    """How checksums are computed on that device. Ranks with different methods cannot compare."""
    if device.type == "cuda" and _is_installed("triton"):
        return "lanes/1"
    return "xxh3/1" if device.type == "cpu" and _is_installed("xxhash") else "blocks/1"


def _on_one_device(tensors: list[Tensor]) -> Tensor:
    how = method(tensors[0].device)
    if how == "lanes/1":
        from forkpoint.replicas.triton_sums import triton_checksums  # noqa: PLC0415 - comes with torch for GPUs only

        return triton_checksums(tensors)
    if how == "xxh3/1":
        return xxh3_checksums(tensors)
    return block_checksums([bytes_of(tensor) for tensor in tensors])


@cache
def _is_installed(module: str) -> bool:
    return find_spec(module) is not None
