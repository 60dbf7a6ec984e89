"""Installed Python packages, from their metadata: nothing of them is imported or run."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from forkpoint.doctor.system import Package

_IN_MAPS = re.compile(r"\s(/\S+?)/torch/lib/lib\S+$", re.MULTILINE)
_METADATA = re.compile(r"(?P<name>[A-Za-z0-9._]+)-(?P<version>[0-9][^-]*)\.dist-info", re.ASCII)
_REQUIRES = "Requires-Dist: "


def folders_of_environment(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where the next job's Python looks: the environment that is switched on, then the one this command runs in."""
    active = [environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    below = [str(folder) for root in active for folder in Path(root).glob("lib/python3*/site-packages")]
    return tuple(dict.fromkeys((*below, *(path for path in sys.path if path.endswith("-packages")))))


def folders_of_process(maps: str) -> tuple[str, ...]:
    """Where a running process has its torch, from the libraries that it has mapped (/proc/PID/maps)."""
    return tuple(dict.fromkeys(_IN_MAPS.findall(maps)))


def find_package(folders: Sequence[str], name: str) -> Package | None:
    """From the first folder that has it."""
    return next((found for folder in folders if (found := _find(Path(folder), name))), None)


def _find(folder: Path, name: str) -> Package | None:
    wanted = name.replace("-", "_").casefold()
    try:
        for entry in folder.iterdir():
            match = _METADATA.fullmatch(entry.name)
            if match and match["name"].replace(".", "_").casefold() == wanted:
                return Package(match["version"], _requires(entry / "METADATA"))
    except OSError:
        return None
    return None


def _requires(metadata: Path) -> tuple[str, ...]:
    try:
        lines = metadata.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(line.removeprefix(_REQUIRES) for line in lines if line.startswith(_REQUIRES))
