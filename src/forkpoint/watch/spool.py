"""The folder with the evidence: `now/` is the last look, `found/0001/` what an alarm was read from."""

import shutil
from collections.abc import Iterable
from pathlib import Path

MAX_FOUND = 100
"""Incidents kept: each may hold a dump of every rank, and a job that fails so often is looked at by then."""


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
        """Written beside and renamed: who reads it sees a whole file."""
        path = self._now / name
        new = path.with_name(f".{name}")
        new.write_bytes(data)
        new.replace(path)
        return str(path)

    def gather(self, copied: Iterable[str], linked: Iterable[str], ranks: str) -> str:
        """All evidence of one look in one folder, under names that still tell the rank. `copied` may be overwritten by
        the job at any time, `linked` are logs: they only grow, and are too large to copy. `ranks`
        is what only someone who looked more than once can know. Raises OSError.
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
        """What was gathered last is an incident now."""
        self._count += 1
        folder = self.found / f"{self._count:04}"
        self._candidate.rename(folder)
        shutil.rmtree(self.found / f"{self._count - MAX_FOUND:04}", ignore_errors=True)
        return str(folder)

    def _place(self, path: str, number: int) -> Path:
        """The last folder stays in the name: it may be what tells the rank (`rank_12/stderr.log`)."""
        source = Path(path)
        folder = self._candidate
        if source.parent != self._now:
            folder = folder / f"{number}" / source.parent.name
            folder.mkdir(parents=True, exist_ok=True)
        return folder / source.name
