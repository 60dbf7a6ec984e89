"""`[tool.forkpoint.lint]` of the nearest pyproject.toml -> Options."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forkpoint.errors import UsageError
from forkpoint.lint.catalogue import nearest, unknown_code
from forkpoint.lint.options import Options, PathIgnore

_TABLE = "[tool.forkpoint.lint]"
_KEYS = ["select", "ignore", "advisory", "exclude", "per-path-ignores"]
_MAX_BYTES = 4_000_000

Table = dict[str, Any]


def read_config(path: str) -> Options:
    """From the first file upward from `path` that has the table; defaults if none has."""
    for file in _candidates(Path(path).absolute()):
        table = _table(file)
        if table is not None:
            return _options(file, table)
    return Options()


def _candidates(start: Path) -> Iterator[Path]:
    folders = [start, *start.parents] if start.is_dir() else list(start.parents)
    yield from (file for folder in folders if (file := folder / "pyproject.toml").is_file())


def _table(file: Path) -> Table | None:
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{file}: too large for a configuration (limit: {_MAX_BYTES:,} bytes)")
        table: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file}: cannot be read as TOML: {error}") from error
    for key in ("tool", "forkpoint", "lint"):
        table = table.get(key) if isinstance(table, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError(f"{file}: {_TABLE} must be a table")
    return table


def _options(file: Path, table: Table) -> Options:
    for key in table:
        if key not in _KEYS:
            raise UsageError(f"{file}: {_TABLE} has no key {key!r}{nearest(key, _KEYS)}")
    advisory = table.get("advisory", False)
    if not isinstance(advisory, bool):
        raise UsageError(f"{file}: {_TABLE} advisory must be true or false")
    per_path = table.get("per-path-ignores", {})
    if not isinstance(per_path, dict):
        raise UsageError(f"{file}: {_TABLE} per-path-ignores must be a table of globs, each with a list of codes")
    return Options(
        select=_codes(file, table, "select"),
        ignore=_codes(file, table, "ignore"),
        advisory=advisory,
        exclude=_strings(file, table, "exclude"),
        path_ignores=tuple(PathIgnore(glob, _codes(file, per_path, glob)) for glob in per_path),
        root=str(file.parent),
    )


def _codes(file: Path, table: Table, key: str) -> tuple[str, ...]:
    codes = _strings(file, table, key)
    for wrong in filter(None, map(unknown_code, codes)):
        raise UsageError(f"{file}: {_TABLE} {key}: {wrong}")
    return codes


def _strings(file: Path, table: Table, key: str) -> tuple[str, ...]:
    values = table.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise UsageError(f"{file}: {_TABLE} {key} must be a list of strings")
    return tuple(values)
