"""All rule codes, which rules run for which files, and `[tool.forkpoint.lint]` of pyproject.toml."""

import os
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from forkpoint.errors import UsageError
from forkpoint.lint import rules
from forkpoint.lint.rule import LintRule

# ---------------------------------------------------------------------------------------------------------------------
# All rule codes that `--select`, `ignore[...]` and `explain` accept.


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """A rule about `ignore[...]` comments, checked after all other rules."""

    code: str
    title: str
    advisory: bool
    doc: str
    found_in: str
    silent_in: str


AnyRule = LintRule | IgnoreRule

_MAX_CODE = 80
"""Longer than any code. The cost of comparing grows with the square of the length."""

IGNORE_WITHOUT_REASON = IgnoreRule(
    code="ignore-without-reason",
    title="a violation is ignored without a reason",
    advisory=False,
    doc="""A violation is ignored without a reason.

    `# forkpoint: ignore[code]` without text after it. The next reader cannot tell a considered exception from a hurried
    one. The violation stays ignored.

    Fix
        After the bracket, say in a few words why ranks cannot diverge here.
    """,
    found_in="if rank == 0:  # forkpoint: ignore[collective-under-branch]\n    dist.barrier()\n",
    silent_in="if rank == 0:  # forkpoint: ignore[collective-under-branch] a group of one\n    dist.barrier(alone)\n",
)
UNUSED_IGNORE = IgnoreRule(
    code="unused-ignore",
    title="an ignore that has no effect",
    advisory=True,
    doc="""An ignore that has no effect.

    `# forkpoint: ignore[code] reason` where that rule finds nothing: the code was repaired, or the comment is on the wrong
    line. It would hide the next violation there. Only rules that ran are checked.

    Fix
        Remove the comment, or move it to the line of the violation.
    """,
    found_in="x = 1  # forkpoint: ignore[ignore-without-reason] nothing to ignore here\n",
    silent_in="x = 1\n",
)
IGNORE_RULES = (IGNORE_WITHOUT_REASON, UNUSED_IGNORE)


def all_rules() -> tuple[AnyRule, ...]:
    return (*rules.RULES, *IGNORE_RULES)


def rule_named(code: str) -> AnyRule | None:
    return next((rule for rule in all_rules() if rule.code == code), None)


def near_codes(text: str) -> list[str]:
    """Codes with a similar spelling, nearest first."""
    return get_close_matches(text[:_MAX_CODE], [rule.code for rule in all_rules()])


def nearest(name: str, names: Sequence[str]) -> str:
    """`; did you mean 'x'?`, or an empty string."""
    near = get_close_matches(name[:_MAX_CODE], names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_code(code: str) -> str | None:
    """An error message if no rule has this code."""
    codes = [rule.code for rule in all_rules()]
    return None if code in codes else f"there is no rule {code[:_MAX_CODE]!r}{nearest(code, codes)}"


# ---------------------------------------------------------------------------------------------------------------------
# Which rules run, and for which files violations are shown.


@dataclass(frozen=True, slots=True)
class PathIgnore:
    glob: str
    codes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Options:
    select: tuple[str, ...] = ()
    """Only these rules, including advisory ones; empty for the default."""
    ignore: tuple[str, ...] = ()
    advisory: bool = False
    exclude: tuple[str, ...] = ()
    """Globs of files without violations. They are read all the same, because others may call functions in them."""
    path_ignores: tuple[PathIgnore, ...] = ()
    root: str = "."
    """The folder that globs start from."""

    def chooses(self, rule: AnyRule) -> bool:
        if rule.code in self.ignore:
            return False
        return rule.code in self.select if self.select else self.advisory or not rule.advisory

    def shows_advisory(self, code: str) -> bool:
        """Whether to show advisory violations of a rule that is not advisory."""
        return self.advisory or code in self.select

    def covers(self, file: str, code: str) -> bool:
        globs = [*self.exclude, *(item.glob for item in self.path_ignores if code in item.codes)]
        return not globs or not _matches(os.path.relpath(file, self.root), globs)


def _matches(path: str, globs: Sequence[str]) -> bool:
    """A glob matches a file or a folder; `*` also matches slashes; a glob without a slash matches at any depth."""
    parts = path.replace(os.sep, "/").split("/")
    places = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(_fits(place, glob.removeprefix("./").removesuffix("/")) for place in places for glob in globs)


def _fits(place: str, glob: str) -> bool:
    if "/" not in glob:
        return fnmatchcase(place.rpartition("/")[2], glob)
    # With a slash in front, `**/x.py` also matches a file at the top.
    return fnmatchcase(place, glob) or fnmatchcase(f"/{place}", glob)


# ---------------------------------------------------------------------------------------------------------------------
# `[tool.forkpoint.lint]` of the nearest pyproject.toml -> Options.

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
    except (OSError, UnicodeError, tomllib.TOMLDecodeError, RecursionError) as error:
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
