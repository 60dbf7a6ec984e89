"""Stacks show which ranks left the others' path, but not whether a branch or a different size is the reason."""

from collections.abc import Iterator

from forkpoint.judge.facts.cite import inconclusive, what_would_decide
from forkpoint.judge.facts.refusal import refused_sizes
from forkpoint.judge.facts.stacks import find_parted_stacks
from forkpoint.judge.facts.symptom import has_ops
from forkpoint.judge.telling.path_headlines import tell_parted
from forkpoint.judge.telling.phrases import MOST_LIKELY
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Action, Finding
from forkpoint.model.world import name_ranks


def find(incident: Incident) -> Iterator[Finding]:
    if incident.divergence is not None or has_ops(incident) or refused_sizes(incident):
        return
    parted = find_parted_stacks(incident)
    if parted is None:
        return
    summary = (
        f"{name_ranks(parted.odd)} left the path of the others at {parted.place}, and all ranks wait for each other: either "
        "another branch was taken, or another size was used in a call that the others have finished"
    )
    fork, wanted = parted.divergence, what_would_decide(incident)
    full, brief = tell_parted(parted, incident)
    yield inconclusive(
        summary,
        parted.evidence,
        wanted,
        suspects=parted.odd,
        action=Action.FIX_CODE,
        divergence=fork,
        headlines=(f"{MOST_LIKELY}{full}", brief),
    )
