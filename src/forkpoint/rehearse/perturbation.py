"""What a perturbation is: something that can really happen to a single rank."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import NOTED_STEPS, Calm, TrialTarget, Use, UseKind


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


def passes(calm: Calm, kind: UseKind) -> Iterator[TrialTarget]:
    """Forward or backward passes, with how many there are for each step."""
    steps = min((told.steps for told in calm.ranks), default=0)
    noted = min(steps, NOTED_STEPS) if kind is UseKind.FORWARD else steps
    for _, target in targets_of(calm, kind):
        per_step = max(1, target.occurrences // noted) if noted else 1
        yield replace(target, occurrences=max(target.occurrences, per_step * steps), per_step=per_step)


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
