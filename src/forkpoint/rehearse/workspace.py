"""A copy of the job's folder for one run, deleted afterwards with everything that the job wrote there."""

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forkpoint.errors import UsageError

RESULTS: Final = "forkpoint-rehearsal"
"""Default folder for results."""
_LEFT_OUT: Final = frozenset(
    {RESULTS, ".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".mypy_cache", ".ruff_cache"}
)
_PREFIX: Final = "forkpoint-rehearse-"
_COPIED: Final = 4 << 20
"""Larger files are data and only linked."""
_MAX_FILES: Final = 20_000


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders of one run."""

    folder: Path

    @property
    def work(self) -> Path:
        """The job's own folder, copied."""
        return self.folder / "work"

    @property
    def told(self) -> Path:
        """Files that the ranks write for us."""
        return self.folder / "told"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def guard(self) -> Path:
        return self.folder / "guard"

    @property
    def scratch(self) -> Path:
        """TMPDIR of the ranks."""
        return self.folder / "tmp"


@contextmanager
def workspace(origin: Path) -> Generator[Workspace]:
    """Removed at the end in any case."""
    with scratch_folder() as folder:
        place = Workspace(folder.resolve())
        for made in (place.told, place.logs, place.guard, place.scratch):
            made.mkdir()
        copy_folder(origin, place.work)
        yield place


@contextmanager
def scratch_folder() -> Generator[Path]:
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def copy_folder(origin: Path, target: Path) -> None:
    """Creates the folders and copies small files; large files are linked, and should only be read."""
    count = 0
    for parent, folders, names in os.walk(origin):
        # Temporary folders, including ours, may be inside the job's folder.
        folders[:] = [name for name in folders if name not in _LEFT_OUT and not name.startswith(_PREFIX)]
        here = target / Path(parent).relative_to(origin)
        here.mkdir(parents=True, exist_ok=True)
        for name in names:
            count += 1
            if count > _MAX_FILES:
                raise UsageError(
                    f"{origin} has more than {_MAX_FILES} files: start it in a folder with only the script"
                )
            source = Path(parent) / name
            if source.is_symlink() or not source.is_file() or source.stat().st_size > _COPIED:
                (here / name).symlink_to(source.resolve())
            else:
                shutil.copy2(source, here / name)
