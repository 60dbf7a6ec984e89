"""What a perturbation is: a way for one rank to be unlucky that can really happen to one rank alone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, Inside
from forkpoint.rehearse.model import Calm, Target, Use, UseKind


@dataclass(frozen=True, slots=True)
class Perturbation:
    kind: str
    title: str
    find: Callable[[Calm, Decisions], Iterator[Target]]
    """What of the job it could disturb, by what the calm run used and what the source decides with it."""
    install: Callable[[Inside], Disturbance]
    """In the rank."""
    otherwise: str
    """Why there is nothing to disturb, where `find` finds nothing."""


def targets_of(
    calm: Calm, kind: UseKind, wanted: Callable[[Use], bool] = lambda _: True
) -> Iterator[tuple[Use, Target]]:
    """One for each place, with the ranks that come by."""
    for by_rank in calm.uses(kind).values():
        ranks = {rank: use for rank, use in by_rank.items() if wanted(use)}
        if ranks:
            use = next(iter(ranks.values()))
            often = min(use.count for use in ranks.values())
            site = use.site if use.site.file else None
            yield use, Target(site, tuple(sorted(ranks)), use.what, often)
