"""One rank gets a batch of its smallest samples, or of its largest.

What it does
    On the chosen rank, the chosen batch of one loader consists of copies of the smallest sample, or of the largest, of those that
    can be read in a second: the shortest text, the record without a picture. The number of samples in the batch stays the same.

Where it comes from
    Luck: any batch may consist of such samples. TRL 3069 and 3056 (padding to the longest sample of this rank's batch),
    verl 5591 (as many micro-batches as this rank's tokens need), verl 3670 (no picture in this rank's batch, so a part of the model is not called), ms-swift 4889.

When it can happen
    Where the program's own collate function makes batches of samples that differ in size.

A healthy program
    Pads to a length that is the same on all ranks, exchanges sizes before data, and calls every part of the model in every step.
"""

import random
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, cast

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank, LoaderFacts, Passed
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, Use, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of

_SPREAD: Final = 64
_READING_S: Final = 1.0


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for use, target in targets_of(calm, UseKind.LOADER, _can):
        often = int(max(1.0, max(use.values, default=0.0)))
        for which in ("smallest", "largest"):
            settings = {"which": which}
            yield replace(target, occurrences=often, settings=settings, label=f"{use.what}, its {which}")


def _can(use: Use) -> bool:
    return use.facts.get("own_collate") == "1" and use.facts.get("numbered") == "1"


class _Small(Disturbance):
    def batches(self, site: CodeSite | None, facts: LoaderFacts, batches: Iterator[Any]) -> Iterator[Any]:
        if self.is_here(site, f"loader {facts.number}"):
            return Passed(batches, self._exchanged(site, facts, batches))
        return batches

    def _exchanged(self, site: CodeSite | None, facts: LoaderFacts, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            sample = self._extreme(facts) if self.is_now() else None
            if sample is None:
                yield batch
            else:
                made = facts.collate([sample] * facts.batch_size)
                self.say(f"its batch was made of its {self.settings['which']} samples", self.inside.here() or site)
                yield made

    def _extreme(self, facts: LoaderFacts) -> Any:
        """The smallest or largest of the samples that can be read in a second; None if all have the same size."""
        chosen = max if self.settings["which"] == "largest" else min
        with _same_luck(self.inside.torch):
            found = list(_read_some(facts.samples))
        sizes = [size for size, _ in found]
        return found[sizes.index(chosen(sizes))][1] if min(sizes) < max(sizes) else None


def _read_some(samples: Any) -> Iterator[tuple[int, Any]]:
    """In an order in which a few are already spread over the whole data set."""
    until = time.monotonic() + _READING_S
    step = max(1, len(samples) // _SPREAD)
    for number in (number for begin in range(step) for number in range(begin, len(samples), step)):
        sample = samples[number]
        yield _size(sample), sample
        if time.monotonic() > until:
            return


@contextmanager
def _same_luck(torch: Any) -> Generator[None]:
    """Reading samples may draw random numbers; this restores the generators afterwards."""
    numpy = sys.modules.get("numpy")
    states = random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy else None
    yield
    random.setstate(states[0])
    torch.set_rng_state(states[1])
    if numpy:
        numpy.random.set_state(states[2])


def _size(sample: Any) -> int:
    if sample is None:
        return 0
    if isinstance(sample, str | bytes):
        return len(sample)
    if isinstance(sample, Mapping):
        return sum(map(_size, cast("Mapping[Any, Any]", sample).values()))
    if isinstance(sample, (list, tuple)):
        return sum(map(_size, cast("list[Any]", sample)))
    return int(sample.nbytes) if hasattr(sample, "nbytes") else 1


def _install(inside: InsideRank) -> Disturbance:
    return _Small(inside)


PERTURBATION = Perturbation(
    "small-samples",
    "a batch of small samples",
    find,
    _install,
    "the program has no collate function of its own",
)
