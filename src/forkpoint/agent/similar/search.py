"""What two incidents can have in common, which recorded cases share most with a verdict, and how the index of cases is written."""

import json
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from forkpoint.model.verdict import Cause, Symptom, Verdict

# ---------------------------------------------------------------------------------------------------------------------
# What two incidents can have in common: of a verdict, or of a recorded case.


class ForkShape(StrEnum):
    """How ranks part at the fork point."""

    NONE = "none"
    """There is no fork point."""
    SAME = "same call"
    """All are in the same call."""
    ARGUMENTS = "one call with other sizes or dtypes"
    CALLS = "different calls"
    ABSENT = "some have no call there"


@dataclass(frozen=True, slots=True)
class Traits:
    cause: Cause
    symptom: Symptom | None
    messages: bool
    """The fork point is a message between two ranks."""
    shape: ForkShape
    ops: frozenset[str]
    """Calls at the fork point."""
    part_of_world: bool
    """The fork point lies in a group that is not the whole job."""


def traits_of(verdict: Verdict) -> Traits:
    divergence = verdict.divergence
    cohorts = divergence.cohorts if divergence else ()
    return Traits(
        cause=verdict.cause,
        symptom=verdict.symptom,
        messages=divergence is not None and divergence.channel is not None,
        shape=shape_of([c.op for c in cohorts]),
        ops=frozenset(c.op for c in cohorts if c.op),
        part_of_world=divergence is not None and len(divergence.group.ranks) < verdict.coverage.ranks,
    )


def shape_of(calls: list[str | None]) -> ForkShape:
    """`calls`: the op of each cohort, None where it has none."""
    if not calls:
        return ForkShape.NONE
    if None in calls:
        return ForkShape.ABSENT
    if len(set(calls)) > 1:
        return ForkShape.CALLS
    return ForkShape.SAME if len(calls) == 1 else ForkShape.ARGUMENTS


# ---------------------------------------------------------------------------------------------------------------------
# Which recorded cases have most in common with a verdict.

INDEX = "index.toml"
_UNDECIDED = frozenset({Cause.INCONCLUSIVE, Cause.HEALTHY})
_WEIGHTS = {"cause": 5, "shape": 3, "messages": 3, "ops": 2, "group": 1, "symptom": 1}
_ENOUGH = 4
"""Below this two cases have in common what nearly all have."""


@dataclass(frozen=True, slots=True)
class RecordedCase:
    """A run that was recorded, with what really happened."""

    number: str
    title: str
    backend: str
    layout: str
    world: int
    fault: str
    """What the lab broke; empty where a program was broken by hand. Runs of one fault tell the same story."""
    traits: Traits
    """Its cause is the true one."""
    story: str


@dataclass(frozen=True, slots=True)
class Similar:
    recorded: RecordedCase
    shared: tuple[str, ...]
    """What both have."""
    weight: int


def find_similar(verdict: Verdict, without: Collection[str] = (), cause: Cause | None = None) -> tuple[Similar, ...]:
    """Most alike first. `without`: numbers of cases to leave out, with all runs of the same fault. `cause`: the one to
    assume, where that is not the verdict's.
    """
    known = recorded()
    faults = {case.fault for case in known if case.number in without} - {""}
    mine = traits_of(verdict)
    assumed = cause or mine.cause
    found: list[Similar] = []
    for case in known:
        if case.number not in without and case.fault not in faults:
            shared = tuple(_shared(mine, case.traits, assumed))
            found.append(Similar(case, tuple(text for _, text in shared), sum(_WEIGHTS[name] for name, _ in shared)))
    alike = [similar for similar in found if similar.weight >= _ENOUGH]
    return tuple(sorted(alike, key=lambda s: (-s.weight, s.recorded.number)))


@cache
def recorded() -> tuple[RecordedCase, ...]:
    table = tomllib.loads(files("forkpoint.agent.similar").joinpath(INDEX).read_text("utf-8"))
    return tuple(_recorded(case) for case in table["case"])


def _shared(mine: Traits, other: Traits, assumed: Cause) -> Iterator[tuple[str, str]]:
    """(which trait, in words). That nothing is known on both sides is nothing in common."""
    if assumed is other.cause and assumed not in _UNDECIDED:
        yield "cause", f"cause {other.cause}"
    if mine.shape is other.shape and mine.shape is not ForkShape.NONE:
        yield "shape", f"at the fork point {other.shape}"
    if mine.messages and other.messages:
        yield "messages", "it parts in a message between two ranks"
    if mine.ops & other.ops:
        yield "ops", f"calls {', '.join(sorted(mine.ops & other.ops))}"
    if mine.part_of_world and other.part_of_world:
        yield "group", "it parts in a group that is not the whole job"
    if mine.symptom is other.symptom and mine.symptom is not None:
        yield "symptom", f"symptom {other.symptom}"


def _recorded(table: dict[str, Any]) -> RecordedCase:
    return RecordedCase(
        number=table["number"],
        title=table["title"],
        backend=table["backend"],
        layout=table["layout"],
        world=table["world"],
        fault=table["fault"],
        traits=Traits(
            cause=Cause(table["cause"]),
            symptom=Symptom(table["symptom"]),
            messages=table["messages"],
            shape=ForkShape(table["shape"]),
            ops=frozenset(table["ops"]),
            part_of_world=table["part_of_world"],
        ),
        story=table["story"],
    )


# ---------------------------------------------------------------------------------------------------------------------
# Writes the index of recorded cases. The repository has the cases, an installation only the index.

_HEAD = "# Generated by `make docs` from cases/; a test keeps it true.\n"


def render_index(cases: Path) -> str:
    """The text of index.toml, from each case's truth and the verdict that was accepted."""
    return "\n".join([_HEAD, *(_table(path.parent) for path in sorted(cases.glob("[0-9]*/expected.json")))])


def _table(folder: Path) -> str:
    facts = tomllib.loads((folder / "case.toml").read_text("utf-8"))
    verdict = json.loads((folder / "expected.json").read_text("utf-8"))
    truth = facts["truth"]
    divergence = verdict["divergence"]
    cohorts: list[dict[str, Any]] = divergence["cohorts"] if divergence else []
    fields = {
        "number": folder.name,
        "title": facts["title"],
        "backend": facts["backend"],
        "layout": facts["layout"],
        "world": facts["world"],
        "fault": facts.get("fault", ""),
        "cause": _best(truth["cause"]),
        "symptom": _best(truth["symptom"]),
        "messages": bool(divergence and divergence["channel"]),
        "shape": str(shape_of([c["op"] for c in cohorts])),
        "ops": sorted({c["op"] for c in cohorts if c["op"]}),
        "part_of_world": bool(divergence and len(divergence["group"]["ranks"]) < verdict["coverage"]["ranks"]),
        "story": truth["story"],
    }
    # JSON's strings, numbers and lists are TOML's, too, as long as nothing is outside Unicode's first plane.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join(["[[case]]", *lines, ""])


def _best(answers: str | list[str]) -> str:
    """A truth lists what a careful person could say, best first."""
    return answers if isinstance(answers, str) else answers[0]
