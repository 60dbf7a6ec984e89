"""Which commit is checked out, and the page of a file of it on the forge. Read from `.git`; no program is run."""

import re
from configparser import ConfigParser
from configparser import Error as ConfigError
from functools import cache
from pathlib import Path
from urllib.parse import quote

_COMMIT = re.compile(r"[0-9a-f]{40}")
_REMOTE = re.compile(r"(?:https://|ssh://git@|git@)([\w.-]{1,100})(?::\d+)?[:/]([\w./-]{1,200}?)(?:\.git)?/?")
_MAX_BYTES = 1_000_000


def forge_page(path: str) -> str | None:
    """`https://github.com/owner/name/blob/COMMIT/train.py`; None if git's files do not tell."""
    file = Path(path).resolve()
    root = next((folder for folder in file.parents if (folder / ".git").is_dir()), None)
    base = _base(root) if root else None
    return f"{base}/{quote(file.relative_to(root).as_posix())}" if root and base else None


def commit_of(path: str) -> str | None:
    """The commit that is checked out at `path`; None if git's files do not tell."""
    place = Path(path).resolve()
    root = next((folder for folder in (place, *place.parents) if (folder / ".git").is_dir()), None)
    return _commit(root / ".git") if root else None


@cache
def _base(root: Path) -> str | None:
    commit, remote = _commit(root / ".git"), _remote(root / ".git" / "config")
    if commit is None or remote is None:
        return None
    host, name = remote
    return f"https://{host}/{name}/{'-/' if 'gitlab' in host else ''}blob/{commit}"


def _commit(git: Path) -> str | None:
    head = _read(git / "HEAD").strip()
    if not head.startswith("ref: "):
        return head if _COMMIT.fullmatch(head) else None
    name = head.removeprefix("ref: ")
    if ".." in name:
        return None
    packed = (line.split(" ") for line in _read(git / "packed-refs").splitlines() if line.endswith(f" {name}"))
    found = _read(git / name).strip() or next((line[0] for line in packed), "")
    return found if _COMMIT.fullmatch(found) else None


def _remote(config: Path) -> tuple[str, str] | None:
    parser = ConfigParser(strict=False, interpolation=None, allow_no_value=True)
    try:
        parser.read_string(_read(config))
    except ConfigError:
        return None
    found = _REMOTE.fullmatch(parser.get('remote "origin"', "url", fallback=None) or "")
    return (found[1], found[2].strip("/")) if found else None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8") if file.stat().st_size <= _MAX_BYTES else ""
    except (OSError, UnicodeError):
        return ""
