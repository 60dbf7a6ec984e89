"""Where evidence about a running job comes from, one file per source, and the spool folder that it goes to."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from forkpoint.model.log import LogEvent
from forkpoint.model.world import name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# The folder with the evidence: `now/` is the last look, `found/0001/` what an alarm was read from.

MAX_FOUND = 100
"""Incidents kept: each may contain a dump of every rank, and nobody needs more than this many."""


class Spool:
    def __init__(self, root: str) -> None:
        self.root = Path(root).resolve()
        self.found = self.root / "found"
        self._now = self.root / "now"
        self._candidate = self.root / ".candidate"  # hidden: the page lists what was found, not what may be
        for folder in (self.found, self._now):
            folder.mkdir(parents=True, exist_ok=True)
        self._count = max((int(f.name) for f in self.found.iterdir() if f.name.isdecimal()), default=0)

    def put(self, name: str, data: bytes) -> str:
        """Writes a temporary file and renames it, so readers always see a complete file."""
        path = self._now / name
        new = path.with_name(f".{name}")
        new.write_bytes(data)
        new.replace(path)
        return str(path)

    def gather(self, copied: Iterable[str], linked: Iterable[str], ranks: str) -> str:
        """Puts all evidence of one look into one folder, under names that keep the rank. `copied`: files that the job may
        overwrite at any time. `linked`: logs, which only grow and are too large to copy. `ranks`: the text of
        `ranks.json`, which takes more than one look to know. Raises OSError.
        """
        shutil.rmtree(self._candidate, ignore_errors=True)
        self._candidate.mkdir()
        for number, path in enumerate(copied):
            shutil.copyfile(path, self._place(path, number))
        for number, path in enumerate(linked):
            self._place(path, number).symlink_to(Path(path).resolve())
        (self._candidate / "ranks.json").write_text(ranks)
        return str(self._candidate)

    def keep(self) -> str:
        """Keeps what was gathered last as an incident."""
        self._count += 1
        folder = self.found / f"{self._count:04}"
        self._candidate.rename(folder)
        shutil.rmtree(self.found / f"{self._count - MAX_FOUND:04}", ignore_errors=True)
        return str(folder)

    def _place(self, path: str, number: int) -> Path:
        """Keeps the last folder of the path: it may name the rank (`rank_12/stderr.log`)."""
        source = Path(path)
        folder = self._candidate
        if source.parent != self._now:
            folder = folder / f"{number}" / source.parent.name
            folder.mkdir(parents=True, exist_ok=True)
        return folder / source.name


# ---------------------------------------------------------------------------------------------------------------------
# What sources have in common. None of them signals, stops or changes the job.


@dataclass(frozen=True, slots=True)
class Dump:
    path: str
    seen: float
    """When this content was first seen, on our monotonic clock: an unchanged file keeps its time."""
    written: float | None
    """When it was written, in seconds since 1970; None if that cannot be compared with the times in it."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """What one source got in one look."""

    dumps: tuple[Dump, ...] = ()
    stacks: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    """Paths of logs and other texts, which are not copied."""
    world_size: int | None = None
    """If the source states it."""
    has_grown: bool = False
    """Logs were written to since the look before."""
    said: tuple[LogEvent, ...] = ()
    """Events in the lines that were added since."""
    notes: tuple[str, ...] = ()


class LiveSource(Protocol):
    @property
    def name(self) -> str: ...

    def gather(self, spool: Spool, *, stacks: bool) -> Gathered:
        """`stacks`: also each rank's stack. Asked for only when nothing moves, since it costs the job more."""
        ...


def tell_missing(missing: Iterable[tuple[int, str, str]]) -> tuple[str, ...]:
    """Ranks, addresses and reasons -> a note per reason: a thousand ranks that are gone are one line."""
    by_reason: dict[str, list[tuple[int, str]]] = {}
    for rank, address, why in missing:
        by_reason.setdefault(why, []).append((rank, address))
    return tuple(
        f"{name_ranks(r for r, _ in ranks)}{f' at {ranks[0][1]}' if len(ranks) == 1 else ''}: {why}"
        for why, ranks in sorted(by_reason.items())
    )
