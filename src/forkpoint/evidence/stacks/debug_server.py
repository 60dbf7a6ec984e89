"""What torch's debug server writes (`stacks_*.txt`, `pyspy_dump_*.txt`): a block per rank, each in another format.

    === Rank 0: http://node-1:48079/handler/dump_traceback? ===
    Current thread 0x00007fd4037fe6c0 (most recent call first):
      <no Python frame>

The number is the global rank. A rank that did not answer has `Error: 500` in its block; such ranks are also listed on
top (`PARTIAL DATA: 1/2 workers responded`).
"""

import re
from collections.abc import Sequence

_BLOCK = re.compile(r"=== Rank (\d{1,7}): .{0,2000} ===\s*$")
_TOP = re.compile(r"=== Rank \d{1,7}: |PARTIAL DATA: \d|  Rank \d{1,7}: |Error: \d{3}\s*$")

Block = tuple[int, int, Sequence[str]]
"""Rank, number of its first line in the file, lines."""


def begins_block(line: str) -> bool:
    return line.startswith("=== Rank ") and bool(_BLOCK.match(line))


def is_preamble(line: str) -> bool:
    return bool(_TOP.match(line))


def split_blocks(lines: Sequence[str]) -> list[Block]:
    """One block per rank; the last one of a rank that has two (two dumps in one file). Lines before the first block are skipped."""
    found = [(number, _BLOCK.match(line)) for number, line in enumerate(lines) if begins_block(line)]
    starts = [(number, int(match[1])) for number, match in found if match]
    ends = [number for number, _ in starts[1:]]
    blocks: dict[int, Block] = {}
    for (start, rank), end in zip(starts, [*ends, len(lines)], strict=False):
        blocks[rank] = (rank, start + 2, lines[start + 1 : end])
    return [blocks[rank] for rank in sorted(blocks)]
