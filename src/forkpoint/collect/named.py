"""Dumps that logs name. A log may hold anything: a path from it is followed only if the file is a dump."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from forkpoint.collect.usual import dumps_of
from forkpoint.ingest.files import SNIFF
from forkpoint.ingest.flight_recorder import looks_like_dump

_WRITTEN = re.compile(rb"(?:Flight Recorder|NCCLPG) debug info to (/[^\s\0]{1,1000})")
_VARIABLE = re.compile(rb"TORCH_(?:FR_DUMP|NCCL_DEBUG_INFO)_TEMP_FILE(?:=|: ?)(/[^\s\0,;\"']{1,1000})")
_RANK = re.compile(r"\d{1,7}\Z")
_PIECE = 8 << 20
_OVERLAP = 2048
_AT_MOST = 10_000


def find_named(logs: Iterable[Path]) -> list[str]:
    """Files that are dumps by their content."""
    named = {path for log in logs for path in _named_in(log)}
    beside = {found for prefix in {_RANK.sub("", path) for path in named} for found in dumps_of(prefix)}
    return sorted(path for path in list(beside | named)[:_AT_MOST] if _is_dump(path))


def _named_in(log: Path) -> Iterator[str]:
    rest = b""
    with log.open("rb") as stream:
        while data := stream.read(_PIECE):
            text = rest + data
            for pattern in (_WRITTEN, _VARIABLE):
                yield from (found.decode("utf-8", "replace") for found in pattern.findall(text))
            rest = text[-_OVERLAP:]


def _is_dump(path: str) -> bool:
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as stream:
            return looks_like_dump(stream.read(SNIFF))
    except OSError:
        return False
