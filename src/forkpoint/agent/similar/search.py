"""Which recorded cases have most in common with a verdict."""

import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from forkpoint.agent.similar.traits import ForkShape, Traits, traits_of
from forkpoint.model.verdict import Cause, Symptom, Verdict

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
