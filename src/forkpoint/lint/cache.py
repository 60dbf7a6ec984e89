"""Reports of earlier runs, by everything they depend on: forkpoint itself, the options, and the content of every file.

The cache is optional: if an entry is missing or damaged, or cannot be written, the work is done again.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from msgspec import MsgspecError

import forkpoint
from forkpoint.lint.catalogue import Options
from forkpoint.lint.render.json_report import read_json, render_json
from forkpoint.lint.rule import LintReport

MAX_ENTRIES = 64
MAX_ENTRY_BYTES = 8_000_000
"""Per report: 64 of them are at most half a gigabyte. Larger ones are rare and are not cached."""


def key_of(paths: Sequence[str], files: Sequence[str], options: Options) -> str:
    """Differs whenever the report could."""
    digest = hashlib.sha256()
    settings = {
        "version": forkpoint.__version__,
        "code": _digest_of_files(_own_source()),
        "options": asdict(options),
        "folder": str(Path.cwd()),
        "packages": [_packages_above(path) for path in paths],
        "files": _digest_of_files(files),
    }
    digest.update(json.dumps(settings, sort_keys=True).encode())
    return digest.hexdigest()


def load(key: str) -> LintReport | None:
    try:
        checksum, _, document = _place(key).read_text(encoding="ascii").partition("\n")
        return read_json(document) if checksum == _checksum(document) else None
    except (OSError, ValueError, KeyError, TypeError, MsgspecError):
        return None


def store(key: str, report: LintReport) -> None:
    document = render_json(report)
    if len(document) > MAX_ENTRY_BYTES:
        return
    place = _place(key)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=".new-")
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(f"{_checksum(document)}\n{document}")
        Path(name).replace(place)
        _forget_oldest(place.parent)
    except OSError:
        return


def _forget_oldest(folder: Path) -> None:
    """Temporary files of killed runs are removed in the same way."""
    by_age = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in by_age[MAX_ENTRIES:]:
        file.unlink(missing_ok=True)


def _place(key: str) -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore a relative path.
    base = home if home.is_absolute() else Path.home() / ".cache"
    return base / "forkpoint" / "lint" / f"{key}.json"


def _own_source() -> list[str]:
    folder = Path(forkpoint.__file__).parent
    files = (file for part in ("lint", "source") for file in (folder / part).rglob("*.*") if file.is_file())
    # Without bytecode, which appears after the first run.
    return sorted(str(file) for file in files if "__pycache__" not in file.parts)


def _packages_above(path: str) -> list[str]:
    """Parent folders that are packages: module names depend on them."""
    folders = Path(path).absolute().parents
    return [str(folder) for folder in folders if (folder / "__init__.py").exists()]


def _digest_of_files(files: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for part in _names_and_digests(files):
        digest.update(part + b"\0")
    return digest.hexdigest()


def _names_and_digests(files: Sequence[str]) -> Iterator[bytes]:
    for file in files:
        yield os.fsencode(file)
        try:
            yield hashlib.sha256(Path(file).read_bytes()).digest()
        except OSError as error:
            yield str(error.errno).encode()


def _checksum(document: str) -> str:
    return hashlib.sha256(document.encode("ascii")).hexdigest()
