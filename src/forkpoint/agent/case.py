"""One case: evidence, verdict and source, as tools and claims look at it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forkpoint.agent.inside import name_inside
from forkpoint.bridge.fork import Fork
from forkpoint.ingest import read
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import examine
from forkpoint.redact import Redactor
from forkpoint.report.escape import escape
from forkpoint.source.analysis import Analysis

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    paths: tuple[str, ...]
    """What was given as evidence."""
    source: tuple[str, ...]
    """Folders or files that the program was read from."""
    incident: Incident
    verdict: Verdict
    analysis: Analysis | None
    """Of the source; None where none was given."""
    forks: tuple[Fork, ...]
    redactor: Redactor
    name_inside: Callable[[str], str]

    def clean(self, text: str) -> str:
        """The one door through which text from evidence or source reaches a model."""
        return escape(self.redactor.redact(self.name_inside(text)))


def open_case(paths: Sequence[str], source: Sequence[str] = (), progress: Progress | None = None) -> Case:
    """Reads and judges, as `diagnose` does."""
    capture = read(paths, progress)
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
