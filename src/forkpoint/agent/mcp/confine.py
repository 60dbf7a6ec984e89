"""Which paths a peer may have opened: those that lie, with all that would be read below them, inside one folder."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from forkpoint.agent.tool import Refused
from forkpoint.ingest.files import find_files
from forkpoint.report.escape import escape
from forkpoint.source.program import find_files as find_source

_MAX_PATHS = 100


def confine(paths: Sequence[str], root: Path) -> tuple[str, ...]:
    """Evidence: the paths, resolved. Links that lead out are refused, also those of single files in a folder."""
    allowed = tuple(_inside(path, root) for path in _few(paths))
    _refuse_links_out(find_files(allowed), root)
    return allowed


def confine_source(paths: Sequence[str], root: Path) -> tuple[str, ...]:
    """Source: likewise, by the files that the reader of source would take."""
    allowed = tuple(_inside(path, root) for path in _few(paths))
    for path in allowed:
        _refuse_links_out(find_source(path), root)
    return allowed


def _few(paths: Sequence[str]) -> Sequence[str]:
    if len(paths) > _MAX_PATHS:
        raise Refused(f"{len(paths)} paths are too many: name their folder")
    return paths


def _inside(path: str, root: Path) -> str:
    try:
        found = (root / path).resolve(strict=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        raise Refused(f"{_shown(path)}: no such file or folder under the root of this server") from error
    if not found.is_relative_to(root):
        raise Refused(f"{_shown(path)} lies outside the root of this server; whoever started it chose --root")
    if not (found.is_dir() or found.is_file()):
        raise Refused(f"{_shown(path)} is neither a file nor a folder")
    here = Path.cwd()
    return str(found.relative_to(here) if found.is_relative_to(here) else found)  # evidence is named by it


def _refuse_links_out(files: Iterable[str], root: Path) -> None:
    for file in files:
        if not Path(file).resolve().is_relative_to(root):
            raise Refused(
                f"{_shown(Path(file).name)} is a link that leads out of the root of this server; take it away"
            )


def _shown(path: str) -> str:
    return escape(path[:200])
