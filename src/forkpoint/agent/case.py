"""The case and its vocabulary: evidence, verdict, source; facts with ids; what a model hands in; what a tool and a claim are."""

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

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
    """What was given as evidence."""
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


# ---------------------------------------------------------------------------------------------------------------------
# What was shown to a model: every line has an id, and a model can cite only what it was shown.


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of evidence or source, redacted, without terminal control characters."""

    where: str
    """`log_rank_0.txt line 31`, `train.py:48`, `rank 2 default_pg seq 9`: what a reader opens to check."""
    says: str


@dataclass(frozen=True, slots=True)
class Shown:
    id: str
    fact: Fact

    def __str__(self) -> str:
        return f"[{self.id}] {self.fact.where}: {self.fact.says}"


class Ledger:
    """Facts in the order in which they were first shown. The same fact keeps its id."""

    def __init__(self) -> None:
        self._ids: dict[Fact, str] = {}

    def show(self, facts: Iterable[Fact]) -> tuple[Shown, ...]:
        return tuple(Shown(self._ids.setdefault(fact, f"F{len(self._ids) + 1}"), fact) for fact in facts)

    @property
    def shown(self) -> tuple[Shown, ...]:
        return tuple(Shown(number, fact) for fact, number in self._ids.items())

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._ids.values())


# ---------------------------------------------------------------------------------------------------------------------
# The base class of everything that a model hands in.
#
# The JSON schemas use only what all providers accept: every field required (`null` instead of absent), no additional fields,
# no limits on numbers or lengths (these are checked where they matter), little nesting.


class Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


def schema_of(wire: type[Wire], shown: Sequence[str], remedies: Sequence[str] = ()) -> dict[str, Any]:
    """JSON schema of a model's input. Lists named `evidence` accept only ids in `shown`, lists named `remedies` only ids in
    `remedies`.
    """
    schema = json.loads(_written_schema(wire))
    _limit(schema, {"evidence": shown, "remedies": remedies})
    return schema


@cache
def _written_schema(wire: type[Wire]) -> str:
    """Cached as text: each request needs its own copy, and pydantic is slow to make one."""
    return json.dumps(wire.model_json_schema())


def _limit(node: Any, choices: Mapping[str, Sequence[str]]) -> None:
    if isinstance(node, list):
        for item in node:
            _limit(item, choices)
    elif isinstance(node, dict):
        if isinstance(node.get("title"), str):
            del node["title"]
        if "properties" in node:
            node["required"] = list(node["properties"])
            for field in node["properties"].values():
                field.pop("default", None)
        for name, values in choices.items():
            listed = node.get("properties", {}).get(name)
            if listed is not None and values:
                listed["items"] = {"type": "string", "enum": list(values)}
        for value in node.values():
            _limit(value, choices)


# ---------------------------------------------------------------------------------------------------------------------
# What a tool is: a question that the engine answers with facts. Tools read nothing but the case.


class QuestionRefused(Exception):
    """The question cannot be answered as asked; the text says what is possible."""


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    """For the model: one or two sentences."""
    arguments: type[Wire]
    answer: Callable[[Case, Any], Sequence[Fact]]
    """Takes an instance of `arguments`. Raises Refused."""


# ---------------------------------------------------------------------------------------------------------------------
# What a claim is: a statement that the engine can check.


class ClaimStatus(StrEnum):
    SUPPORTED = "supported"
    """The evidence, or the source, shows it."""
    CONTRADICTED = "contradicted"
    """The evidence, or the source, shows otherwise."""
    UNVERIFIABLE = "unverifiable"
    """The evidence neither shows it nor rules it out."""


@dataclass(frozen=True, slots=True)
class ClaimCheck:
    status: ClaimStatus
    why: str
    """One sentence: what was found instead, or what would be needed."""
    facts: tuple[Fact, ...] = ()
    """The facts that decided it."""

    @classmethod
    def unverifiable(cls, why: str) -> Self:
        return cls(ClaimStatus.UNVERIFIABLE, why)


class Claim(Wire):
    """Subclasses are in `claims/`; each has its own `kind`."""

    evidence: list[str] = Field(default_factory=list)
    """Ids of facts that were shown. Citing them proves nothing: the check does."""

    @abstractmethod
    def sentence(self) -> str:
        """The claim in words. Contains only checked fields: numbers, and names in backquotes."""

    @abstractmethod
    def check(self, case: Case) -> ClaimCheck:
        """Asks the engine; ignores what the model cited."""
