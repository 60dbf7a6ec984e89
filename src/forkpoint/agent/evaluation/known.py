"""Recorded cases with a known truth, opened without their names, and answers marked against the truth."""

import re
import shutil
import tomllib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from forkpoint.agent.case import Tool
from forkpoint.agent.hypothesis import ModelHypothesis
from forkpoint.agent.similar import recorded
from forkpoint.agent.tools.verdict import similar_tool
from forkpoint.brief.case import Case, matching_groups, open_case
from forkpoint.errors import UnreadableInput, UsageError
from forkpoint.model.verdict import Cause, Verdict

# ---------------------------------------------------------------------------------------------------------------------
# Recorded cases, laid out as in cases/: capture/, source/ and case.toml, which has the truth.


@dataclass(frozen=True, slots=True)
class TrueLines:
    """A range of source lines; naming any of them is right."""

    file: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class KnownTruth:
    """Every answer that a careful person could give from the evidence."""

    healthy: bool
    causes: tuple[Cause, ...]
    group: str | None
    """Of the fork point. None: not recorded, only the seq counts."""
    seqs: tuple[int, ...]
    """Empty: the evidence cannot show it."""
    suspects: tuple[tuple[int, ...], ...]
    """An empty answer means that no rank should be named."""
    places: tuple[TrueLines, ...]
    """Empty: no line of the source is at fault."""


@dataclass(frozen=True, slots=True)
class KnownCase:
    name: str
    capture: Path
    source: Path | None
    fault: str
    """The fault that the lab injected; empty if a program was broken by hand."""
    truth: KnownTruth


def read_known(folder: Path, only: Collection[str] = ()) -> tuple[KnownCase, ...]:
    """Sorted by name. Raises before a model is asked anything."""
    found = sorted(path.parent for path in folder.glob("*/case.toml") if (path.parent / "capture").is_dir())
    if not found:
        raise UsageError(
            f"{folder}: contains no recorded case (NAME/case.toml and NAME/capture/); give the folder of cases"
        )
    unknown = sorted(set(only) - {path.name for path in found})
    if unknown:
        raise UsageError(
            f"{folder}: contains no case {', '.join(unknown)}; its cases are {found[0].name} to {found[-1].name}"
        )
    return tuple(_read(path) for path in found if not only or path.name in only)


def _read(folder: Path) -> KnownCase:
    path = folder / "case.toml"
    try:
        facts = tomllib.loads(path.read_text("utf-8"))
        return KnownCase(
            name=folder.name,
            capture=folder / "capture",
            source=folder / "source" if (folder / "source").is_dir() else None,
            fault=str(facts.get("fault", "")),
            truth=_truth(facts["truth"]),
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UnreadableInput(f"{path}: does not contain the truth of a case ({error}); see cases/README.md") from error


def _truth(told: dict[str, Any]) -> KnownTruth:
    causes: Sequence[str] = [told["cause"]] if isinstance(told["cause"], str) else told["cause"]
    return KnownTruth(
        healthy=Cause(causes[0]) is Cause.HEALTHY,
        causes=tuple(map(Cause, causes)),
        group=told.get("group"),
        seqs=tuple(told.get("seq", ())),
        suspects=tuple(tuple(sorted(answer)) for answer in told["suspects"]) or ((),),
        places=tuple(_places(told.get("site", ()))),
    )


def _places(sites: Sequence[dict[str, Any]]) -> Iterator[TrueLines]:
    for site in sites:
        first, last = site["lines"]
        yield TrueLines(site["file"], first, last)


# ---------------------------------------------------------------------------------------------------------------------
# Marking an answer: where ranks first diverged, which ranks are at fault, and which line.


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    groups: frozenset[str]
    """Names and descriptions of the group."""
    seq: int | None
    suspects: tuple[int, ...]
    site: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class Marks:
    earliest: bool | None
    """The fork point is right. None: the truth does not have it."""
    suspects: bool
    """Exactly the right ranks."""
    precision: float
    """Share of true suspects among those named; 0 if one is missing."""
    site: bool | None
    """The line is right. None: the truth names no line."""


def answer_of_engine(verdict: Verdict) -> CaseAnswer:
    fork, site = verdict.divergence, next(iter(verdict.sites), None)
    return CaseAnswer(
        groups=frozenset({fork.group.name, fork.group.desc}) if fork else frozenset(),
        seq=fork.seq if fork else None,
        suspects=verdict.suspects,
        site=(site.file, site.line) if site else None,
    )


def answer_of_model(case: Case, told: ModelHypothesis) -> CaseAnswer:
    named = told.earliest_group or ""
    meant = [group.group for group in matching_groups(case, named)]
    file, line = told.site_file, told.site_line
    return CaseAnswer(
        groups=frozenset({named, *(name for group in meant for name in (group.name, group.desc))}),
        seq=told.earliest_seq,
        suspects=tuple(sorted(set(told.suspects))),
        site=(file, line) if file is not None and line is not None else None,
    )


def says_nothing(told: ModelHypothesis) -> bool:
    return not told.claims and not told.suspects and told.earliest_seq is None and told.site_line is None


def mark(truth: KnownTruth, answer: CaseAnswer | None) -> Marks:
    """`answer` None: no answer was given, which never counts as right."""
    if answer is None:
        wrong = CaseAnswer(frozenset(), None, (), None)
        return replace(mark(truth, wrong), suspects=False, precision=0.0)
    return Marks(
        earliest=_is_earliest(truth, answer) if truth.seqs else None,
        suspects=answer.suspects in truth.suspects,
        precision=max(_precision(true, answer.suspects) for true in truth.suspects),
        site=_is_site(truth, answer) if truth.places else None,
    )


def _is_earliest(truth: KnownTruth, answer: CaseAnswer) -> bool:
    return answer.seq in truth.seqs and (truth.group is None or truth.group in answer.groups)


def _precision(true: tuple[int, ...], named: tuple[int, ...]) -> float:
    if not named:
        return float(not true)
    return len(true) / len(named) if set(true) <= set(named) else 0.0


def _is_site(truth: KnownTruth, answer: CaseAnswer) -> bool:
    if answer.site is None:
        return False
    file, line = answer.site
    return any(file == place.file and place.first <= line <= place.last for place in truth.places)


# ---------------------------------------------------------------------------------------------------------------------
# A case without its name: the model under test must not see which case it is.
#
# Recorded jobs ran in folders named after the injected fault, and logs and stacks contain those paths.

_JOB = "job"
_INSTALLED = (b"site-packages", b"/lib/python")


@contextmanager
def open_neutral(known: KnownCase) -> Generator[Case]:
    """A temporary copy; a symbolic link would reveal the name."""
    with TemporaryDirectory(prefix="forkpoint-") as folder:
        evidence = shutil.copytree(known.capture, Path(folder) / "evidence")
        source = shutil.copytree(known.source, Path(folder) / "source") if known.source else None
        case = open_case([str(evidence)], [str(source)] if source else [])
        names = {known.name, known.fault, *(folders_of_job(evidence, source) if source else ())} - {""}
        yield replace(case, name_inside=_without(names, case.name_inside))


def similar_without(known: KnownCase) -> Tool:
    """The `similar` tool without this case and without other runs of the same fault."""
    runs = {told.number for told in recorded() if known.fault and told.fault == known.fault}
    return similar_tool(without={known.name, *runs})


def folders_of_job(evidence: Path, source: Path) -> set[str]:
    """Names of the folders that held the job's source files when it ran."""
    files = [re.escape(path.relative_to(source).as_posix()).encode() for path in source.rglob("*.py")]
    if not files:
        return set()
    own = re.compile(rb"((?:/[\w.@-]+)+)/(?:" + b"|".join(files) + rb")\b")
    texts = (path.read_bytes() for path in evidence.rglob("*") if path.is_file())
    folders = {found for text in texts for found in own.findall(text)}
    return {Path(f.decode()).name for f in folders if not any(place in f for place in _INSTALLED)}


def _without(names: set[str], before: Callable[[str], str]) -> Callable[[str], str]:
    """A function that replaces folders with these names in a text."""
    folder = re.compile(rf"(?<=/)(?:{'|'.join(map(re.escape, sorted(names)))})(?=[/\s\"']|$)")
    return lambda text: folder.sub(_JOB, before(text))
