"""What a perturbation is: something that can really happen to a single rank."""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import InsideRank, Listener, LoaderFacts, Watched
from forkpoint.rehearse.model import NOTED_STEPS, Calm, CodeSite, Effect, Trial, TrialTarget, Use, UseKind, write_value

EFFECT_FILE = "effect.json"


class Disturbance(Listener):
    """Waits for the chosen occasion on the chosen rank, and reports what it did. Its docstring is what `--list` prints."""

    kind: ClassVar[str]
    otherwise: ClassVar[str]
    """Why there is nothing to disturb, if `find` finds nothing."""

    @staticmethod
    def find(calm: Calm, decisions: Decisions, /) -> Iterator[TrialTarget]:
        """What it could disturb in this job, according to the calm run and the source."""
        raise NotImplementedError

    def __init__(self, inside: InsideRank) -> None:
        super().__init__(inside)
        trial = inside.order.trial
        assert trial is not None  # a trial's order has one
        self.trial: Trial = trial
        self.settings = trial.target.settings
        self._pid = os.getpid()
        self._seen = 0
        self._told = False

    def is_here(self, site: CodeSite | None, what: str | None = None) -> bool:
        """This is a chosen rank, and the place."""
        if self.inside.rank() not in self.trial.ranks or not self._may_act():
            return False
        if what is not None and what != self.trial.target.what:
            return False
        wanted = self.trial.target.site
        return wanted is None or (site is not None and (site.file, site.line) == (wanted.file, wanted.line))

    def _may_act(self) -> bool:
        """A loader's worker is not the rank."""
        return os.getpid() == self._pid

    def is_due(self) -> bool:
        """Counts occasions. True from the chosen one on."""
        self._seen += 1
        return self._seen > self.trial.at

    def is_now(self) -> bool:
        """True only until the effect was reported."""
        return self.is_due() and not self._told

    def say(self, says: str, site: CodeSite | None) -> None:
        """Records the effect, the first time."""
        if not self._told:
            self._told = True
            self.inside.mark()
            if self.inside.rank() != self.trial.rank:  # one of those that are disturbed together tells
                return
            effect = Effect(self.trial.rank, says, site, self.inside.steps(), time.time())
            write_value(Path(self.inside.order.folder) / EFFECT_FILE, effect)


class WorkerDisturbance(Disturbance):
    """Also acts in the workers of a loader, which read files for the rank. The rank takes note when it gets its next batch."""

    def batches(self, site: CodeSite | None, facts: LoaderFacts, batches: Iterator[Any]) -> Iterator[Any]:
        del site
        if not facts.workers or self.inside.rank() != self.trial.rank:
            return batches
        return Watched(batches, self._take_note)

    def _take_note(self, _batch: Any) -> None:
        if not self._told and (Path(self.inside.order.folder) / EFFECT_FILE).is_file():
            self._told = True
            self.inside.mark()

    def _may_act(self) -> bool:
        return super()._may_act() or self.inside.torch.utils.data.get_worker_info() is not None


# ---------------------------------------------------------------------------------------------------------------------
# Finding what can be disturbed, from the calm run.


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
