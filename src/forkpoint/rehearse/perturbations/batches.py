"""Batches of one rank are fewer, more or shorter."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar, cast

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import GeneratorFacts, LoaderFacts, Passed
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, Use, UseKind
from forkpoint.rehearse.perturbation import Disturbance, targets_of


class OneBatchFewer(Disturbance):
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
        share one data set between all ranks. A DistributedSampler pads, so its loaders are left alone. Ranks whose first batch was the same
        read the same data: they are disturbed together, and left alone if all do. A generator counts if a test
        in its loop decides what it yields, and its items differed between ranks in the calm run.

    A healthy program
        Agrees on the number of rounds before the loop (a minimum over all ranks), asks all ranks in every round whether one
        has nothing left, or uses torch's `Join`.
    """

    kind = "one-batch-fewer"
    otherwise = "no loader whose number of batches can differ by rank"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        for use, target in own_loaders(calm, _can_end_early):
            yield label_of(use, target)
        for by_rank in calm.uses(UseKind.GENERATOR).values():
            uses = list(by_rank.values())
            by_data = uses[0].facts["by_data"] == "1"
            if by_data and all(map(ends, uses)) and len({use.facts["content"] for use in uses}) > 1:
                target = TrialTarget(uses[0].site, tuple(sorted(by_rank)), uses[0].what)
                yield label_of(uses[0], target)

    def batches(self, site: CodeSite | None, facts: LoaderFacts, batches: Iterator[Any]) -> Iterator[Any]:
        if self.is_here(site, f"loader {facts.number}") and self.is_now():
            return Passed(batches, self._without_last(batches, site))
        return batches

    def generated(self, site: CodeSite, facts: GeneratorFacts, items: Iterator[Any]) -> Iterator[Any]:
        if self.is_here(site, facts.what) and self.is_now():
            return Passed(items, self._without_last(items, site))
        return items

    def _without_last(self, batches: Iterator[Any], site: CodeSite | None) -> Iterator[Any]:
        """The last batch is not read at all, because reading it may have side effects in the user's sampler or data set."""
        counts = self.settings["batches"].split()
        yield from islice(batches, int(counts[min(self.trial.at, len(counts) - 1)]) - 1)
        self.say(f"its {self.trial.target.what.split()[0]} ended one batch early", self.inside.here() or site)


def _can_end_early(use: Use) -> bool:
    return is_own_count(use) and ends(use) and max(use.values, default=0) > 1


class OneBatchMore(Disturbance):
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

    kind = "one-batch-more"
    otherwise = "no loader whose number of batches can differ by rank"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        for use, target in own_loaders(calm, _can_repeat):
            yield label_of(use, target)

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


def _can_repeat(use: Use) -> bool:
    return is_own_count(use) and ends(use) and max(use.values, default=0) > 0


class ShortBatch(Disturbance):
    """One rank gets a batch with a single sample, with half of its samples, or with none.

    What it does
        The chosen batch of one loader has only one sample on the chosen rank, or half of them: every tensor is cut along its first
        dimension. Or none: it is what the program's own collate function makes of no sample, its error included.

    Where it comes from
        The last batch of a shard; a collate function that drops samples it cannot use. TRL 4041 (a rank without an unmasked
        token), detectron2 7c69c051 (an empty batch is not part of the graph), DeepSpeed 5117 (a shorter last batch).

    When it can happen
        Where nothing makes batches the same size on all ranks: the loaders of *one batch fewer*, and those with the program's own
        collate function that filters. An empty batch only if such a function could make one.

    A healthy program
        Communicates sizes before data, pads, or reduces sums and counts instead of means. An error that ends the job on an empty
        batch is also fine.
    """

    kind = "short-batch"
    otherwise = "no loader whose batches can have another size on one rank"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        for use, target in own_loaders(calm, is_own_size):
            often = int(max(1.0, max(use.values, default=0.0)))
            sizes = ("one", "half", "no") if use.facts.get("drops") == "1" else ("one", "half")
            for size in sizes:
                settings = {"size": size}
                yield replace(target, occurrences=often, settings=settings, label=f"{use.what}, {_COUNTS[size]}")

    def batches(self, site: CodeSite | None, facts: LoaderFacts, batches: Iterator[Any]) -> Iterator[Any]:
        if self.is_here(site, f"loader {facts.number}"):
            return Passed(batches, self._cut(batches, site, facts))
        return batches

    def _cut(self, batches: Iterator[Any], site: CodeSite | None, facts: LoaderFacts) -> Iterator[Any]:
        for batch in batches:
            if not self.is_now():
                yield batch
                continue
            try:
                made = facts.collate([]) if self.settings["size"] == "no" else self._first(batch)
            finally:  # afterwards: the lines of the collate function are no fork
                self.say(f"its batch had {_COUNTS[self.settings['size']]}", self.inside.here() or site)
            yield made

    def _first(self, batch: Any) -> Any:
        def cut(tensor: Any) -> Any:
            if not tensor.dim():
                return tensor
            return tensor[: 1 if self.settings["size"] == "one" else (len(tensor) + 1) // 2]

        return map_tensors(batch, cut, self.inside.torch)


_COUNTS = {"one": "one sample", "half": "half of its samples", "no": "no sample"}


# ---------------------------------------------------------------------------------------------------------------------
# What perturbations of batches share.


T = TypeVar("T")


def own_loaders(
    calm: Calm, wanted: Callable[[Use], bool], kind: UseKind = UseKind.LOADER
) -> Iterator[tuple[Use, TrialTarget]]:
    """Loaders (or generators), for ranks whose first batch no other rank has. Ranks that read the same data (the batches of a
    tensor-parallel group, both ends of a pipeline) cannot have different luck with it: they are disturbed together, unless they are all
    (one validation set for all).
    """
    for use, target in targets_of(calm, kind, wanted):
        readers: dict[str, list[int]] = {}
        for rank, own in calm.uses(kind)[use.key].items():
            readers.setdefault(own.facts.get("content") or f"rank {rank}", []).append(rank)
        alone = tuple(rank for group in readers.values() if len(group) == 1 for rank in group if rank in target.ranks)
        if alone:
            yield use, replace(target, ranks=alone)
        for first, *others in readers.values():
            if others and first in target.ranks and len(others) + 1 < calm.world:
                yield use, replace(target, ranks=(first,), together=tuple(others))


def is_own_count(use: Use) -> bool:
    """Nothing makes this loader's number of batches the same on all ranks."""
    return use.facts.get("shared_out") == "0"


def ends(use: Use) -> bool:
    """It was read to its end at least once. If it never was, a missing last batch would go unnoticed."""
    return use.facts.get("ends") == "1"


def is_own_size(use: Use) -> bool:
    """Nothing makes its batches the same size on all ranks: the user's collate function drops samples, or the batches end where
    the rank's own data ends.
    """
    return is_own_count(use) or use.facts.get("drops") == "1"


def label_of(use: Use, target: TrialTarget) -> TrialTarget:
    """The target with one occasion per iteration of the loader, and a label."""
    counts = [f"{batches:.0f}" for batches in use.values]
    return replace(
        target,
        occurrences=max(1, len(counts)),
        settings={"batches": " ".join(counts)},
        label=f"{use.what}, {counts[0] if counts else 0} batches",
    )


def map_tensors(batch: Any, change: Callable[[Any], Any], torch: Any) -> Any:
    """The same batch with every tensor changed, through nested mappings, lists and tuples."""
    if isinstance(batch, torch.Tensor):
        return change(batch)
    if isinstance(batch, Mapping):
        named = cast("Mapping[Any, Any]", batch)
        changed = {key: map_tensors(value, change, torch) for key, value in named.items()}
        kind: Any = cast("Any", type(batch))
        return kind(changed)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(value, change, torch) for value in cast("tuple[Any, ...]", batch)))
    if isinstance(batch, Sequence) and not isinstance(batch, str | bytes):
        kind = cast("Any", type(batch))
        return kind(map_tensors(value, change, torch) for value in cast("Sequence[Any]", batch))
    return batch
