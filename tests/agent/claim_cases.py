"""Cases to check claims against: recorded ones, and small programs beside the evidence of a recorded one."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from cases import CASES, examine_case, load_cases, read_case
from forkpoint.brief.case import Case, name_inside
from forkpoint.redact import Redactor
from forkpoint.source import read_program
from forkpoint.source.analysis import analyse
from source.written import analysis_of

DECIDES, CALLS = "# decides", "# calls"


@cache
def recorded(number: str) -> Case:
    """As `open_case` opens it, from the examination that all tests share."""
    found, source = examine_case(number, source=True), CASES / number / "source"
    paths = (str(CASES / number / "capture"),)
    return Case(
        paths=paths,
        source=(str(source),) if source.is_dir() else (),
        incident=found.incident,
        verdict=found.verdict,
        analysis=found.analysis,
        forks=found.forks,
        redactor=Redactor.of(read_case(number)),
        name_inside=name_inside(paths),
    )


def all_recorded(share: int = 1) -> Iterator[tuple[str, Case]]:
    """One in `share` of them."""
    for case in load_cases()[::share]:
        yield case.number, recorded(case.number)


def all_with_messages() -> Iterator[tuple[str, Case]]:
    """Whether there are any does not depend on the source, which is read for these alone."""
    for case in load_cases():
        if examine_case(case.number).incident.timeline.channels:
            yield case.number, recorded(case.number)


def with_source(folder: Path, **modules: str) -> Case:
    """A recorded case, as if this program had run."""
    analysis = analysis_of(folder, **modules)
    return replace(recorded("0001"), source=(str(folder),), analysis=analysis, forks=())


def with_text(folder: Path, text: str, name: str = "train.py") -> Case:
    """The same for one file as it is, with nothing put before it."""
    (folder / name).write_bytes(text.encode())
    return replace(recorded("0001"), source=(str(folder),), analysis=analyse(read_program([str(folder)])), forks=())


def marked(folder: Path, mark: str, name: str = "train.py") -> int:
    """The number of the one line that bears this mark."""
    lines = (folder / name).read_text().splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if mark in line]
    return found
