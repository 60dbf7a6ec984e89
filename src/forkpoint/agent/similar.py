"""Finds the recorded cases that share most traits with a verdict, and writes the index of cases."""

import json
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from forkpoint.model.verdict import Cause, Symptom, Verdict

# ---------------------------------------------------------------------------------------------------------------------
# Traits that two incidents can have in common, from a verdict or from a recorded case.


class ForkShape(StrEnum):
    """How ranks diverge at the fork point."""

    NONE = "none"
    """There is no fork point."""
    SAME = "same call"
    """All are in the same call."""
    ARGUMENTS = "one call with other sizes or dtypes"
    CALLS = "different calls"
    ABSENT = "some have no call there"


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    cause: Cause
    symptom: Symptom | None
    messages: bool
    """The fork point is a message between two ranks."""
    shape: ForkShape
    ops: frozenset[str]
    """Calls at the fork point."""
    part_of_world: bool
    """The group of the fork point is not the whole job."""


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
    """`calls`: the op of each cohort, None if it has none."""
    if not calls:
        return ForkShape.NONE
    if None in calls:
        return ForkShape.ABSENT
    if len(set(calls)) > 1:
        return ForkShape.CALLS
    return ForkShape.SAME if len(calls) == 1 else ForkShape.ARGUMENTS


# ---------------------------------------------------------------------------------------------------------------------
# Which recorded cases have most in common with a verdict.

_INDEX = Path(__file__).with_name("similar.toml")
"""Describes each case of the repository's `cases/`; written by `make docs`."""
_UNDECIDED = frozenset({Cause.INCONCLUSIVE, Cause.HEALTHY})
_WEIGHTS = {"cause": 5, "shape": 3, "messages": 3, "ops": 2, "group": 1, "symptom": 1}
_ENOUGH = 4
"""Below this weight, cases share only what nearly all cases share."""


class RecordedCase(Traits, frozen=True, kw_only=True):
    """A recorded run with its known truth; its cause is the true one."""

    number: str
    title: str
    backend: str
    layout: str
    world: int
    fault: str
    """The fault that the lab injected; empty if a program was broken by hand. Runs of one fault have the same story."""
    story: str


@dataclass(frozen=True, slots=True)
class Similar:
    recorded: RecordedCase
    shared: tuple[str, ...]
    """Shared traits in words."""
    weight: int


def find_similar(verdict: Verdict, without: Collection[str] = (), cause: Cause | None = None) -> tuple[Similar, ...]:
    """Most similar first. `without`: numbers of cases to leave out, with all runs of the same fault. `cause`: assume this one
    instead of the verdict's.
    """
    known = recorded()
    faults = {case.fault for case in known if case.number in without} - {""}
    mine = traits_of(verdict)
    assumed = cause or mine.cause
    found: list[Similar] = []
    for case in known:
        if case.number not in without and case.fault not in faults:
            shared = tuple(_shared(mine, case, assumed))
            found.append(Similar(case, tuple(text for _, text in shared), sum(_WEIGHTS[name] for name, _ in shared)))
    alike = [similar for similar in found if similar.weight >= _ENOUGH]
    return tuple(sorted(alike, key=lambda s: (-s.weight, s.recorded.number)))


@cache
def recorded() -> tuple[RecordedCase, ...]:
    return msgspec.convert(tomllib.loads(_INDEX.read_text("utf-8"))["case"], tuple[RecordedCase, ...])


def _shared(mine: Traits, other: Traits, assumed: Cause) -> Iterator[tuple[str, str]]:
    """(trait, in words). Unknown on both sides does not count as shared."""
    if assumed is other.cause and assumed not in _UNDECIDED:
        yield "cause", f"cause {other.cause}"
    if mine.shape is other.shape and mine.shape is not ForkShape.NONE:
        yield "shape", f"at the fork point {other.shape}"
    if mine.messages and other.messages:
        yield "messages", "ranks diverge in a message between two of them"
    if mine.ops & other.ops:
        yield "ops", f"calls {', '.join(sorted(mine.ops & other.ops))}"
    if mine.part_of_world and other.part_of_world:
        yield "group", "ranks diverge in a group that is not the whole job"
    if mine.symptom is other.symptom and mine.symptom is not None:
        yield "symptom", f"symptom {other.symptom}"


# ---------------------------------------------------------------------------------------------------------------------
# Writes the index of recorded cases. The repository has the cases, an installation only the index.

_HEAD = "# Generated by `make docs` from cases/; a test keeps it true.\n"


def render_index(cases: Path) -> str:
    """The text of `similar.toml`, from each case's truth and accepted verdict."""
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
    # JSON strings, numbers and lists are also valid TOML, as long as all characters are in Unicode's first plane.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join(["[[case]]", *lines, ""])


def _best(answers: str | list[str]) -> str:
    """The best of the acceptable answers, which is listed first."""
    return answers if isinstance(answers, str) else answers[0]
