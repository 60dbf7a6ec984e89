"""Values were out of line before reduction, and nothing shows that a rank is to blame."""

from collections.abc import Iterator

from forkpoint.judge.facts.cite import inconclusive
from forkpoint.judge.facts.symptom import only_values_tell
from forkpoint.judge.facts.values import (
    FirstOutOfLine,
    cite_out_of_line,
    describe_out_of_line,
    find_first_out_of_line,
    what_to_recheck,
)
from forkpoint.model.headline import plain_ranks
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Finding
from forkpoint.model.world import name_ranks


def find(incident: Incident) -> Iterator[Finding]:
    values = incident.capture.values
    first = find_first_out_of_line(values) if only_values_tell(incident) else None
    if first is not None:
        told = describe_out_of_line(first) if first.alike else f"{describe_out_of_line(first)}; {_reading(first)}"
        ranks = [one.rank for one in first.out]
        seen = f"losses or gradients of {plain_ranks(ranks)} were abnormal at step {first.step}"
        yield inconclusive(told, cite_out_of_line(first, values), (what_to_recheck(first),), headlines=(seen,))


def _reading(first: FirstOutOfLine) -> str:
    if first.absent:
        return f"{name_ranks(first.absent)} left no record of that step, so it may have begun there"
    if len(first.out) == 1:
        return "the others were in line: either its GPU or its batch is the cause, and nothing says which"
    return "the others were in line: look at what these ranks share, a model-parallel group, a node or data"
