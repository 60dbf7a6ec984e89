"""Which rules run, and for which files violations are shown."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from forkpoint.lint.catalogue import AnyRule


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
