"""One rank's data: what a filter keeps of it, and how large its samples are."""

import random
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, cast

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import GeneratorFacts, LoaderFacts, Passed
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, Use, UseKind
from forkpoint.rehearse.perturbation import Disturbance
from forkpoint.rehearse.perturbations.batches import own_loaders

_LEAST: Final = 16
SLICE: Final = "slice"
"""What `Use.what` says of a part of a list."""


class OneSampleFewer(Disturbance):
    """A filter keeps less of one rank's data.

    What it does
        At the chosen run of one filter (a list comprehension with `if`, a loop that begins with `if ...: continue`) the
        chosen rank loses one element of what it would keep, or half of it.

    Where it comes from
        An empty line, a document that is too long, an unreadable picture, in one rank's shard. SpeechBrain and fairseq
        filter by length, TRL by tokens; if each rank filters its own shard, the lengths differ from then on.

    When it can happen
        Where a filter reads at least sixteen items of plain data (texts, numbers, records) that differed between ranks in the calm
        run, and uses neither the rank nor other ranks. A list that was the same on all ranks stays the same.

    A healthy program
        Filters before it shares out the data, agrees on the number of rounds, or exchanges sizes before data.
    """

    kind = "one-sample-fewer"
    otherwise = "no filter reads data that differs by rank"

    @staticmethod
    def find(calm: Calm, decisions: Decisions) -> Iterator[TrialTarget]:
        for by_rank in calm.uses(UseKind.FILTER).values():
            uses = list(by_rank.values())
            if not all(map(_is_data, uses)) or not _differs_by_rank(uses) or not decisions.filters_alone(uses[0].site):
                continue
            target = TrialTarget(uses[0].site, tuple(sorted(by_rank)), uses[0].what, min(use.count for use in uses))
            for lost in ("one", "half"):
                yield replace(target, settings={"lost": lost}, label=f"{lost} of {int(uses[0].facts['least'])}")

    def kept(self, site: CodeSite, values: list[Any]) -> list[Any]:
        if not self.is_here(site, "list") or not self.is_now() or len(values) < 2:
            return values
        left = values[:-1] if self.settings["lost"] == "one" else values[: len(values) // 2]
        self.say(f"a filter kept {len(left)} of its items, {len(values) - len(left)} fewer", site)
        return left

    def each(self, site: CodeSite, values: Iterator[Any]) -> Iterator[Any]:
        if not self.is_here(site, "loop") or not self.is_now():
            return values
        return self._without(site, values)

    def _without(self, site: CodeSite, values: Iterator[Any]) -> Iterator[Any]:
        """Drops the first, or every other one."""
        for number, value in enumerate(values):
            if number == 0 or (number % 2 == 0 and self.settings["lost"] == "half"):
                self.say("a filter dropped one of its items", site)
            else:
                yield value


def _is_data(use: Use) -> bool:
    return use.facts.get("plain") == "1" and int(use.facts.get("least", "0")) >= _LEAST


def _differs_by_rank(uses: list[Use]) -> bool:
    """The fingerprints of the filtered data differ between ranks."""
    compared = min(len(use.values) for use in uses)
    return len(uses) > 1 and any(use.values[:compared] != uses[0].values[:compared] for use in uses)


_SPREAD: Final = 64
_READING_S: Final = 1.0
_CUT: Final = 4


class SmallSamples(Disturbance):
    """One rank gets a batch of its smallest samples, of its largest, or of one that is shorter still.

    What it does
        On the chosen rank, the chosen batch of one loader consists of copies of the smallest sample, or of the largest, of those that
        can be read in a second: the shortest text, the record without a picture. Or of the smallest cut to a quarter, in all its parts
        whose length, or number of integers that are not zero, differs between samples: a few samples seldom hold the shortest one there is.
        The number of samples in the batch stays the same.

    Where it comes from
        Luck: any batch may consist of such samples. TRL 3069 and 3056 (padding to the longest sample of this rank's batch),
        verl 5591 (as many micro-batches as this rank's tokens need), verl 3670 (no picture in this rank's batch, so a part of the model is not called), ms-swift 4889.

    When it can happen
        Where the program's own collate function makes batches of samples that differ in size, or where batches have rows of integers
        (tokens, masks) with different numbers of zeros. And where a generator of the program yields lists of samples (records, tokens)
        that differ in size, or the program takes such a part of a list (`samples[a:b]`); there, the sample comes from the same list.

    A healthy program
        Pads to a length that is the same on all ranks, exchanges sizes before data, and calls every part of the model in every step.
    """

    kind = "small-samples"
    otherwise = "samples cannot be read by number, or all have the same size"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        generators = own_loaders(calm, lambda use: use.facts.get("uneven") == "1", UseKind.GENERATOR)
        for use, target in (*own_loaders(calm, _can_differ), *generators):
            often = int(max(1.0, max(use.values, default=0.0)))
            for which in ("smallest", "shorter", "largest"):
                label = f"{use.what}, {'shorter than all of them' if which == 'shorter' else f'its {which}'}"
                yield replace(target, occurrences=often, settings={"which": which}, label=label)

    def batches(self, site: CodeSite | None, facts: LoaderFacts, batches: Iterator[Any]) -> Iterator[Any]:
        if self.is_here(site, f"loader {facts.number}"):
            return Passed(batches, self._exchanged(site, facts, batches))
        return batches

    def generated(self, site: CodeSite, facts: GeneratorFacts, items: Iterator[Any]) -> Iterator[Any]:
        return Passed(items, self._exchanged_lists(site, items)) if self.is_here(site, facts.what) else items

    def taken(self, site: CodeSite, items: list[Any]) -> list[Any]:
        if not self.is_here(site, SLICE) or not is_batch(items) or not self.is_now():
            return items
        self._say_made(site)
        return [self._choose(items)] * len(items)

    def _exchanged_lists(self, site: CodeSite, items: Iterator[Any]) -> Iterator[Any]:
        """A generator makes its batches by itself: only the samples of the chosen one are known."""
        for item in items:
            sample = self._choose(item) if differ_in_size(item) and self.is_now() else None
            if sample is None:
                yield item
            else:
                self._say_made(site)
                yield [sample] * len(item)

    def _exchanged(self, site: CodeSite | None, facts: LoaderFacts, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            sample = self._extreme(facts) if self.is_now() else None
            if sample is None:
                yield batch
            else:
                made = facts.collate([sample] * facts.batch_size)
                self._say_made(site)
                yield made

    def _say_made(self, site: CodeSite | None) -> None:
        which = self.settings["which"]
        told = "a quarter of the smallest sample" if which == "shorter" else f"its {which} samples"
        self.say(f"its batch was made of {told}", self.inside.here() or site)

    def _extreme(self, facts: LoaderFacts) -> Any:
        """The smallest or largest of the samples that can be read in a second; None if all have the same size."""
        with _same_luck(self.inside.torch):
            return self._choose([*_read_some(facts.samples)])

    def _choose(self, samples: Sequence[Any]) -> Any:
        small, large = (chosen(samples, key=_measure) for chosen in (min, max))
        if _measure(small) == _measure(large):
            return None
        return {"smallest": small, "shorter": _cut(small, large), "largest": large}[self.settings["which"]]


def _can_differ(use: Use) -> bool:
    return use.facts.get("numbered") == "1" and "1" in (use.facts.get("own_collate"), use.facts.get("uneven"))


def _read_some(samples: Any) -> Iterator[tuple[tuple[int, int], Any]]:
    """In an order in which a few are already spread over the whole data set."""
    until = time.monotonic() + _READING_S
    step = max(1, len(samples) // _SPREAD)
    for number in (number for begin in range(step) for number in range(begin, len(samples), step)):
        sample = samples[number]
        yield sample
        if time.monotonic() > until:
            return


def _cut(small: Any, large: Any) -> Any:
    """The small sample with a quarter of every part whose length differs from that of the large one."""
    if _is_row(small) and _is_row(large) and small.shape == large.shape:
        return _emptied(small) if _filled(small) != _filled(large) else small
    if isinstance(small, Mapping):
        parts, others = cast("Mapping[Any, Any]", small), cast("Mapping[Any, Any]", large)
        return {key: _cut(part, others.get(key)) for key, part in parts.items()}
    if isinstance(small, tuple) and isinstance(large, tuple):
        pairs = zip(cast("tuple[Any, ...]", small), cast("tuple[Any, ...]", large), strict=False)
        return tuple(_cut(part, other) for part, other in pairs)
    lengths = [len(part) if getattr(part, "ndim", 1) and hasattr(part, "__len__") else 0 for part in (small, large)]
    return small[: max(1, lengths[0] // _CUT)] if 1 < lengths[0] != lengths[1] > 0 else small


def _emptied(row: Any) -> Any:
    """With zeros for all but the first quarter of what is not zero."""
    made = row.clone().contiguous()
    filled = made.view(-1).nonzero().view(-1)
    made.view(-1)[filled[max(1, len(filled) // _CUT) :]] = 0
    return made


def _is_row(part: Any) -> bool:
    """A tensor of integers or booleans."""
    return hasattr(part, "count_nonzero") and part.ndim > 0 and not (part.is_floating_point() or part.is_complex())


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


def differ_in_size(item: Any) -> bool:
    """It is a list of samples that are not all equally large. A tuple, or a list of texts, may be the fields of one record, and
    tensors of floating point numbers may be gradients.
    """
    samples = cast("list[Any]", item) if isinstance(item, list) else []
    return len(samples) > 1 and all(map(_is_sample, samples)) and len(set(map(_measure, samples))) > 1


def is_batch(part: list[Any]) -> bool:
    """A part of a list of samples (tokens, records) that differ in size. Tuples may be anything, as names with sizes."""
    return differ_in_size(part) and all(isinstance(sample, (list, Mapping)) or _is_row(sample) for sample in part)


def _is_sample(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(isinstance(part, str | int | float) or _is_sample(part) for part in cast("list[Any]", value))
    return isinstance(value, Mapping) or _is_row(value)


def _measure(sample: Any) -> tuple[int, int]:
    return _size(sample), _filled(sample)


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


def _filled(sample: Any) -> int:
    """Integers that are not zero: the tokens of a padded text."""
    if isinstance(sample, Mapping):
        return sum(map(_filled, cast("Mapping[Any, Any]", sample).values()))
    if isinstance(sample, (list, tuple)):
        return sum(map(_filled, cast("list[Any]", sample)))
    return int(sample.count_nonzero()) if _is_row(sample) else 0
