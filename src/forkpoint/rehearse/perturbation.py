"""What a perturbation is: something that can really happen to a single rank."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, TrialTarget, Use, UseKind


@dataclass(frozen=True, slots=True)
class Perturbation:
    kind: str
    title: str
    find: Callable[[Calm, Decisions], Iterator[TrialTarget]]
    """What it could disturb in this job, according to the calm run and the source."""
    install: Callable[[InsideRank], Disturbance]
    """Called in the rank."""
    otherwise: str
    """Why there is nothing to disturb, if `find` finds nothing."""


def targets_of(
    calm: Calm, kind: UseKind, wanted: Callable[[Use], bool] = lambda _: True, *, again: bool = False
) -> Iterator[tuple[Use, TrialTarget]]:
    """One for each place, with the ranks that execute it. `again`: in the second run."""
    for by_rank in calm.uses(kind, again=again).values():
        ranks = {rank: use for rank, use in by_rank.items() if wanted(use)}
        if ranks:
            use = next(iter(ranks.values()))
            often = min(use.count for use in ranks.values())
            site = use.site if use.site.file else None
            yield use, TrialTarget(site, tuple(sorted(ranks)), use.what, often)
