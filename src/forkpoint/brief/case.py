"""The case: evidence, verdict and source, redacted and named without folders; a single fact of it; and a question that it cannot
answer.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from forkpoint.errors import UsageError
from forkpoint.evidence import Choice, read
from forkpoint.model.capture import SetAside
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import examine
from forkpoint.redact import Redactor
from forkpoint.report.escape import escape
from forkpoint.source.analysis import Analysis
from forkpoint.source.bridge.fork import Fork

# ---------------------------------------------------------------------------------------------------------------------
# Files are named relative to the given folders, so that the model does not see where the case is stored.


def name_inside(paths: Sequence[str]) -> Callable[[str], str]:
    """A function that removes the given folders from paths in a text. With several folders, their last name stays."""
    folders = dict.fromkeys(path.rstrip("/") if Path(path).is_dir() else str(Path(path).parent) for path in paths)
    told = {
        folder: "" if len(folders) == 1 else f"{Path(folder).name}/" for folder in folders if folder not in {"", "."}
    }
    if not told:
        return str
    longest_first = sorted(told, key=len, reverse=True)
    given = re.compile(rf"(?<![\w./-])({'|'.join(map(re.escape, longest_first))})/")
    return lambda text: given.sub(lambda match: told[match[1]], text)


# ---------------------------------------------------------------------------------------------------------------------
# One case: the evidence, verdict and source that tools and claims use.

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    paths: tuple[str, ...]
    """The paths given as evidence."""
    source: tuple[str, ...]
    """Folders or files that the program was read from."""
    incident: Incident
    verdict: Verdict
    analysis: Analysis | None
    """None if no source was given."""
    forks: tuple[Fork, ...]
    redactor: Redactor
    name_inside: Callable[[str], str]

    def clean(self, text: str) -> str:
        """Redacted and escaped. All text from evidence or source passes here before a model sees it."""
        return escape(self.redactor.redact(self.name_inside(text)))


def open_case(
    paths: Sequence[str], source: Sequence[str] = (), progress: Progress | None = None, use: Sequence[str] = ()
) -> Case:
    """Reads and judges, as `diagnose` does. `use`: files to judge although they would be set aside; each given as the path,
    as the name that tools show, or as the file name alone.
    """
    capture = read(paths, progress)
    if use:
        capture = read(paths, progress, Choice(use=_files_named(use, capture.set_aside, name_inside(paths))))
    found = examine(capture, source)
    return Case(
        paths=tuple(paths),
        source=tuple(source),
        incident=found.incident,
        verdict=found.verdict,
        analysis=found.analysis,
        forks=found.forks,
        redactor=Redactor.of(capture),
        name_inside=name_inside(paths),
    )


def _files_named(use: Sequence[str], aside: Sequence[SetAside], inside: Callable[[str], str]) -> frozenset[str]:
    found = {one.file for one in aside for name in use if name in {one.file, inside(one.file), Path(one.file).name}}
    if not found:
        there = ", ".join(inside(one.file) for one in aside[:8]) or "none"
        raise UsageError(f"no file with these names was set aside; set aside: {there}")
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of evidence or source, redacted, without terminal control characters."""

    where: str
    """`log_rank_0.txt line 31`, `train.py:48`, `rank 2 default_pg seq 9`: what a reader opens to check."""
    says: str


class QuestionRefused(Exception):
    """The question cannot be answered as asked; the text says what is possible."""
