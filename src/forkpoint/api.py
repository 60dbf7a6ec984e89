"""forkpoint from Python: `read` and `diagnose`, and a verdict that renders itself.

>>> import forkpoint
>>> verdict = forkpoint.diagnose("incident/", source="src/")  # doctest: +SKIP
>>> print(verdict.headline)  # doctest: +SKIP
"""

import io
import os
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Self, overload

from forkpoint import pipeline
from forkpoint.errors import UsageError
from forkpoint.evidence import Choice, Progress
from forkpoint.evidence import read as read_paths
from forkpoint.model.capture import Capture
from forkpoint.model.verdict import Verdict as JudgedVerdict
from forkpoint.traces.admission import ADMIT_BY_PROOF

Path = str | os.PathLike[str]
Paths = Path | Iterable[Path]


class Verdict(JudgedVerdict):
    """The verdict that `diagnose` returns. Its fields are those of the JSON; its methods render it."""

    _capture: Capture
    _source: tuple[str, ...]

    @classmethod
    def of(cls, judged: JudgedVerdict, capture: Capture, source: tuple[str, ...]) -> Self:
        made = cls(**{field.name: getattr(judged, field.name) for field in fields(judged)})
        object.__setattr__(made, "_capture", capture)
        object.__setattr__(made, "_source", source)
        return made

    def to_json(self) -> str:
        """As `forkpoint diagnose --json` prints it (schema `forkpoint.verdict/1`)."""
        from forkpoint.report.json_report import render_json  # noqa: PLC0415 - only where it is asked for

        return render_json(self)

    def to_html(self, *, embed_source: bool = True) -> str:
        """The page, as one file that loads nothing from the network. `embed_source`: with source lines in it."""
        from forkpoint.report.page import render_html  # noqa: PLC0415 - as above

        embed = embed_source and bool(self._source)
        return render_html(pipeline.diagnose(self._capture, self._source, picture=True, embed_source=embed))

    def to_markdown(self) -> str:
        """For tickets and chat."""
        from forkpoint.report.markdown import render_markdown  # noqa: PLC0415 - as above

        return render_markdown(self)

    def explain(self) -> str:
        """What this cause is, what shows it, what rules it out and what to change, from the knowledge base."""
        from forkpoint.knowledge.base import find  # noqa: PLC0415 - as above
        from forkpoint.report.explain import render_entries_text  # noqa: PLC0415 - as above

        return render_entries_text(find(str(self.cause)), _WIDTH)

    def _repr_html_(self) -> str:
        from forkpoint.report.notebook import render_notebook  # noqa: PLC0415 - as above

        return render_notebook(self)

    if not TYPE_CHECKING:  # a type checker shall go on to refuse what does not exist

        def __getattr__(self, name: str) -> object:
            instead = f"; use {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise AttributeError(f"a verdict has no attribute {name!r}{instead}", name=name, obj=self)

    def __str__(self) -> str:
        return self.headline or self.summary


_WIDTH = 100
_INSTEAD = {
    "to_dict": "json.loads(verdict.to_json())",
    "save": "Path(...).write_text(verdict.to_html())",
    "to_text": "print(verdict), or verdict.to_markdown()",
    "show": "print(verdict), or verdict.to_html()",
    "html": "verdict.to_html()",
    "json": "verdict.to_json()",
    "markdown": "verdict.to_markdown()",
    "ranks": "verdict.suspects",
}
"""What people try first on a verdict."""


def read(paths: Paths, progress: Progress | None = None, choice: Choice = ADMIT_BY_PROOF) -> Capture:
    """Reads one or more paths: files, folders, archives, addresses. Raises ForkpointError."""
    texts = _texts(paths)
    if not texts:
        raise UsageError("no path was given")
    return read_paths(texts, progress, choice)


@overload
def diagnose(
    evidence: Capture, source: Paths = (), *, picture: bool = False, embed_source: bool = False
) -> Verdict: ...
@overload
def diagnose(evidence: Paths, source: Paths = (), *, picture: bool = False, embed_source: bool = False) -> Verdict: ...
def diagnose(
    evidence: Capture | Paths, source: Paths = (), *, picture: bool = False, embed_source: bool = False
) -> Verdict:
    """Diagnoses one or more paths, or what `read` returned.

    `source`: folders or files of the program that ran. `picture`: also the data that the HTML page draws (`to_html` makes
    its own), with source lines if `embed_source`. Raises ForkpointError if nothing can be read.
    """
    capture = evidence if isinstance(evidence, Capture) else read(evidence)
    folders = _texts(source)
    for folder in folders:
        if not os.path.exists(folder):  # noqa: PTH110 - a text
            raise UsageError(f"source {folder}: no such file or directory")
    judged = pipeline.diagnose(capture, folders, picture=picture, embed_source=embed_source)
    return Verdict.of(judged, capture, folders)


def _texts(paths: Paths) -> tuple[str, ...]:
    if isinstance(paths, io.IOBase):  # its lines would be taken for paths
        raise UsageError("an open file was given; give its path")
    return (os.fspath(paths),) if isinstance(paths, (str, os.PathLike)) else tuple(os.fspath(path) for path in paths)
