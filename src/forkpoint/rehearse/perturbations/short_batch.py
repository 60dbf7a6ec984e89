"""One rank gets a batch with a single sample, or with none.

What it does
    The chosen batch of one loader has only one sample on the chosen rank: every tensor is cut along its first dimension. Or
    none: it is what the program's own collate function makes of no sample, its error included.

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

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank, LoaderFacts, Passed
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget
from forkpoint.rehearse.perturbation import Perturbation
from forkpoint.rehearse.perturbations.batches import is_own_size, map_tensors, own_loaders


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for use, target in own_loaders(calm, is_own_size):
        often = int(max(1.0, max(use.values, default=0.0)))
        sizes = ("1", "0") if use.facts.get("drops") == "1" else ("1",)
        for size in sizes:
            label = f"{use.what}, {size if size == '1' else 'no'} sample"
            yield replace(target, occurrences=often, settings={"size": size}, label=label)


class _Short(Disturbance):
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
                made = facts.collate([]) if self.settings["size"] == "0" else self._first(batch)
            finally:  # afterwards: the lines of the collate function are no fork
                self.say(
                    f"its batch had {'no' if self.settings['size'] == '0' else 'one'} sample",
                    self.inside.here() or site,
                )
            yield made

    def _first(self, batch: Any) -> Any:
        return map_tensors(batch, lambda tensor: tensor[:1] if tensor.dim() else tensor, self.inside.torch)


def _install(inside: InsideRank) -> Disturbance:
    return _Short(inside)


PERTURBATION = Perturbation(
    "short-batch",
    "a short or empty batch",
    find,
    _install,
    "no loader whose batches can have another size on one rank",
)
