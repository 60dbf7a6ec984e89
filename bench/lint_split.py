"""Which projects rules may be tuned on, and which only say how well that went: `lint_split.toml`."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.lint_trees import Bug

SIDES = ("tune", "test")
_FILE = Path(__file__).with_name("lint_split.toml")


@dataclass(frozen=True, slots=True)
class Repository:
    name: str
    """OWNER/NAME."""
    side: str
    commit: str
    """The one that was read."""


@dataclass(frozen=True, slots=True)
class Split:
    bugs: dict[str, str]
    """Project -> side."""
    repositories: tuple[Repository, ...]

    def bugs_of(self, side: str | None, bugs: Iterable[Bug]) -> list[Bug]:
        return [bug for bug in bugs if side is None or self.bugs.get(bug.repo) == side]

    def repositories_of(self, side: str | None) -> list[Repository]:
        return [each for each in self.repositories if side is None or each.side == side]


def read_split(file: Path = _FILE) -> Split:
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    return Split(
        bugs={name: side for side in SIDES for name in table["bugs"][side]},
        repositories=tuple(
            Repository(name, side, commit) for side in SIDES for name, commit in table["repositories"][side].items()
        ),
    )
