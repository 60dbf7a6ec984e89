"""Which rules speak, and about which files."""

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
    """Only these rules, advisory ones included. Empty: the default."""
    ignore: tuple[str, ...] = ()
    advisory: bool = False
    exclude: tuple[str, ...] = ()
    """Globs of files about which nothing is said. They are read all the same: others may call what is in them."""
    path_ignores: tuple[PathIgnore, ...] = ()
    root: str = "."
    """The folder that globs start from."""

    def chooses(self, rule: AnyRule) -> bool:
        if rule.code in self.ignore:
            return False
        return rule.code in self.select if self.select else self.advisory or not rule.advisory

    def shows_advisory(self, code: str) -> bool:
        """Whether a doubtful violation of a rule that is otherwise sure is wanted."""
        return self.advisory or code in self.select

    def speaks_of(self, file: str, code: str) -> bool:
        globs = [*self.exclude, *(item.glob for item in self.path_ignores if code in item.codes)]
        return not globs or not _matches(os.path.relpath(file, self.root), globs)


def _matches(path: str, globs: Sequence[str]) -> bool:
    """A glob names a file or a folder, `*` reaches across folders; without a slash it may stand at any depth."""
    parts = path.replace(os.sep, "/").split("/")
    places = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    return any(_fits(place, glob.removeprefix("./").removesuffix("/")) for place in places for glob in globs)


def _fits(place: str, glob: str) -> bool:
    if "/" not in glob:
        return fnmatchcase(place.rpartition("/")[2], glob)
    # The slash in front lets `**/x.py` name a file at the top, too.
    return fnmatchcase(place, glob) or fnmatchcase(f"/{place}", glob)
