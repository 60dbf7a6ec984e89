"""One rank's loader yields one batch more.

What it does
    In the chosen epoch of one loader, the chosen rank gets its last batch twice.

Where it comes from
    The same as one batch fewer, seen from the other side: this rank has the most data. axolotl 461,
    torchtitan 1634, NeMo Automodel 1601.

When it can happen
    Where nothing makes the number of batches the same on all ranks, as for one batch fewer.

A healthy program
    Agrees on the number of rounds before the loop, asks all ranks in every round, or uses torch's `Join`.
"""

from collections.abc import Iterator
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank, LoaderFacts, Passed
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, Use
from forkpoint.rehearse.perturbation import Perturbation
from forkpoint.rehearse.perturbations.batches import ends, is_own_count, label_of, own_loaders


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for use, target in own_loaders(calm, _can):
        yield label_of(use, target)


def _can(use: Use) -> bool:
    return is_own_count(use) and ends(use) and max(use.values, default=0) > 0


class _More(Disturbance):
    def batches(self, site: CodeSite | None, facts: LoaderFacts, batches: Iterator[Any]) -> Iterator[Any]:
        if self.is_here(site, f"loader {facts.number}") and self.is_now():
            return Passed(batches, self._with_one_more(batches, site))
        return batches

    def _with_one_more(self, batches: Iterator[Any], site: CodeSite | None) -> Iterator[Any]:
        last: list[Any] = []
        for batch in batches:
            last = [batch]
            yield batch
        if last:
            self.say("its loader yielded one batch more", self.inside.here() or site)
        yield from last


def _install(inside: InsideRank) -> Disturbance:
    return _More(inside)


PERTURBATION = Perturbation(
    "one-batch-more",
    "one batch more",
    find,
    _install,
    "no loader whose number of batches can differ by rank",
)
