"""One rank's loader ends one batch early.

What it does
    In the chosen epoch of one loader, the chosen rank does not get its last batch. The loader ends normally. The same for a
    generator of the program that yields batches.

Where it comes from
    A shard with fewer samples, packing that fills fewer batches, samples that were filtered out, a truncated file.
    axolotl 461 (uneven packed batches), torchtitan 1634 (validation until the data set ends), NeMo Automodel
    1601 (15 batches on some ranks, 14 on others).

When it can happen
    Where nothing makes the number of batches the same on all ranks: an IterableDataset, or a loader whose sampler does not
    share one data set between all ranks. A DistributedSampler pads, so its loaders are left alone, and so are those whose first batch
    was the same on another rank: they read the same data. A generator counts if a test
    in its loop decides what it yields, and its items differed between ranks in the calm run.

A healthy program
    Agrees on the number of rounds before the loop (a minimum over all ranks), asks all ranks in every round whether one
    has nothing left, or uses torch's `Join`.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank, LoaderFacts, Passed
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, Use, UseKind
from forkpoint.rehearse.perturbation import Perturbation
from forkpoint.rehearse.perturbations.batches import ends, is_own_count, label_of, own_loaders


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for use, target in own_loaders(calm, _can):
        yield label_of(use, target)
    for by_rank in calm.uses(UseKind.GENERATOR).values():
        uses = list(by_rank.values())
        if all(map(ends, uses)) and len({use.facts["content"] for use in uses}) > 1:
            target = TrialTarget(uses[0].site, tuple(sorted(by_rank)), uses[0].what)
            yield label_of(uses[0], target)


def _can(use: Use) -> bool:
    return is_own_count(use) and ends(use) and max(use.values, default=0) > 1


class _Fewer(Disturbance):
    def batches(self, site: CodeSite | None, facts: LoaderFacts, batches: Iterator[Any]) -> Iterator[Any]:
        if self.is_here(site, f"loader {facts.number}") and self.is_now():
            return Passed(batches, self._without_last(batches, site))
        return batches

    def generated(self, site: CodeSite, name: str, items: Iterator[Any]) -> Iterator[Any]:
        if self.is_here(site, f"generator {name}") and self.is_now():
            return Passed(items, self._without_last(items, site))
        return items

    def _without_last(self, batches: Iterator[Any], site: CodeSite | None) -> Iterator[Any]:
        """The last batch is not read at all, because reading it may have side effects in the user's sampler or data set."""
        counts = self.settings["batches"].split()
        yield from islice(batches, int(counts[min(self.trial.at, len(counts) - 1)]) - 1)
        self.say(f"its {self.trial.target.what.split()[0]} ended one batch early", self.inside.here() or site)


def _install(inside: InsideRank) -> Disturbance:
    return _Fewer(inside)


PERTURBATION = Perturbation(
    "one-batch-fewer",
    "one batch fewer",
    find,
    _install,
    "no loader whose number of batches can differ by rank",
)
