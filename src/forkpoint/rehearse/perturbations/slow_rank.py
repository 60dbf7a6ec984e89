"""One rank is slow.

What it does
    After the chosen step, or before it puts a message into the job's store, the chosen rank sleeps for three seconds.

Where it comes from
    A hot GPU, a slow disk, a neighbour on the same host, garbage collection, the first compilation.

When it can happen
    Always.

A healthy program
    Waits. A program that decides by its own clock, by what is ready, or by a short timeout does not.
"""

import time
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of

_SLOW_S = 3.0


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    steps = min((told.steps for told in calm.ranks), default=0)
    if steps:
        yield TrialTarget(None, tuple(told.rank for told in calm.ranks), occurrences=steps)
    for _, target in targets_of(calm, UseKind.MESSAGE):
        yield replace(target, label="a message in the store")


class _Slow(Disturbance):
    def stepped(self, number: int) -> None:
        if self.trial.target.site is None and self.is_here(None) and self.is_now():
            self.say(f"it was {_SLOW_S:.0f} s late after step {number}", None)
            time.sleep(_SLOW_S)

    def message(self, site: CodeSite, key: str) -> None:
        if self.trial.target.site is not None and self.is_here(site) and self.is_now():
            self.say(f"it was {_SLOW_S:.0f} s late with {key} in the store", site)
            time.sleep(_SLOW_S)


def _install(inside: InsideRank) -> Disturbance:
    return _Slow(inside)


PERTURBATION = Perturbation(
    "slow-rank", "one slow rank", find, _install, "the program makes no optimizer steps and puts nothing into the store"
)
