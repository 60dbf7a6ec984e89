"""Which files are evidence. A job's folder also holds source, data and checkpoints, which are not copied."""

import re
from enum import StrEnum, auto
from pathlib import PurePosixPath

from forkpoint.ingest import TEXT_SUFFIXES
from forkpoint.ingest.files import is_archive
from forkpoint.ingest.flight_recorder import looks_like_dump
from forkpoint.ingest.live_stacks.read import looks_like_stacks
from forkpoint.ingest.machine.kernel import looks_like_kernel_log
from forkpoint.ingest.machine.ras import looks_like_ras
from forkpoint.ingest.rank_states import looks_like_rank_states

_PACKED = re.compile(r"\.(?:log|txt|out|err|json)\.(?:gz|zst|xz)$|\.(?:tar|tar\.gz|tar\.zst|tar\.xz|tgz|zip)$")
_LOG = re.compile(r"(?i:stdout|stderr|rank[_.-]?\d|\blog)")
_ERROR_FILE = "error.json"
"""torchrun's."""
_PICKLES = (".pt", ".pth", ".ckpt", ".pkl.gz")


class FileKind(StrEnum):
    DUMP = auto()
    STACKS = auto()
    RAS = auto()
    KERNEL = auto()
    RANKS = auto()
    """What the guard or a watch knows of the ranks."""
    LOG = auto()
    ARCHIVE = auto()


def find_kind(head: bytes, name: str) -> FileKind | None:
    """The kind of a file, from its first bytes and its name; None: not evidence. An empty file counts: a rank may have died before it wrote."""
    pure = PurePosixPath(name)
    if pure.suffix in _PICKLES:
        return None
    if is_archive(head):
        return FileKind.ARCHIVE if _PACKED.search(pure.name) else None
    if looks_like_dump(head):
        return FileKind.DUMP
    if b"\x00" in head:
        return None
    return _kind_of_text(head.decode("utf-8", "replace"), pure)


def _kind_of_text(head: str, name: PurePosixPath) -> FileKind | None:
    if looks_like_rank_states(head):
        return FileKind.RANKS
    if (
        name.suffix not in TEXT_SUFFIXES
        and name.name != _ERROR_FILE
        and not (name.suffix in ("", ".json") and _LOG.search(name.name))
    ):
        return None
    if looks_like_kernel_log(head):
        return FileKind.KERNEL
    if looks_like_ras(head):
        return FileKind.RAS
    return FileKind.STACKS if looks_like_stacks(head) else FileKind.LOG
