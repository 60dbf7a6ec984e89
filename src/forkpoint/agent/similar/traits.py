"""What two incidents can have in common: of a verdict, or of a recorded case."""

from dataclasses import dataclass
from enum import StrEnum

from forkpoint.model.verdict import Cause, Symptom, Verdict


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
