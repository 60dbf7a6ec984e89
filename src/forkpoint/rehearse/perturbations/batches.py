"""What perturbations of batches share."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from forkpoint.rehearse.model import Calm, TrialTarget, Use, UseKind
from forkpoint.rehearse.perturbation import targets_of

T = TypeVar("T")


def own_loaders(calm: Calm, wanted: Callable[[Use], bool]) -> Iterator[tuple[Use, TrialTarget]]:
    """Loaders, with those ranks whose first batch no other rank has. Ranks that read the same data (one validation set for all, the
    batches of a tensor-parallel group) cannot have different luck with it.
    """
    contents = {
        key: {rank: use.facts.get("content", "") for rank, use in by_rank.items()}
        for key, by_rank in calm.uses(UseKind.LOADER).items()
    }
    for use, target in targets_of(calm, UseKind.LOADER, wanted):
        content = contents[use.key]
        often = Counter(content.values())
        ranks = tuple(rank for rank in target.ranks if not content[rank] or often[content[rank]] == 1)
        if ranks:
            yield use, replace(target, ranks=ranks)


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
