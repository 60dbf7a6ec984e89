"""The vocabulary of a model: facts with ids, what it hands in, what a tool and a claim are."""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from forkpoint.brief.case import Case, Fact

# ---------------------------------------------------------------------------------------------------------------------
# What was shown to a model: every line has an id, and a model can cite only what it was shown.


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


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    description: str
    """For the model: one or two sentences."""
    arguments: type[Wire]
    answer: Callable[[Case, Any], Sequence[Fact]]
    """Takes an instance of `arguments`. Raises Refused."""


class NoArguments(Wire):
    """None."""


def tool(description: str) -> Callable[[Callable[[Case, Any], Sequence[Fact]]], Tool]:
    """Makes a tool of a function: it has the function's name, and takes what its second parameter says."""

    def make(answer: Callable[[Case, Any], Sequence[Fact]]) -> Tool:
        _, arguments, *_ = answer.__annotations__.values()
        return Tool(answer.__name__, description, arguments, answer)

    return make


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
