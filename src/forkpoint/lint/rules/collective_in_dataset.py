"""A collective in a data set, a sampler or a collate function.

Loaders run that code in worker processes, ahead of time, once per item or batch of *this* rank, and each rank has its
own items. Some ranks reach the collective more often, earlier, or in a process without a process group.

Communicate before the loop starts, and pass plain numbers to the data set.

Not reported: collectives in the constructor, which all ranks run once.
"""

from collections.abc import Iterator

from forkpoint.lint.decisions import relate, violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind
from forkpoint.source.branches import name_step
from forkpoint.source.code import Function

CODE = "collective-in-dataset"
_BASES = ("Dataset", "IterableDataset", "Sampler", "BatchSampler", "MapDataPipe", "IterDataPipe")
_PER_ITEM = frozenset({"__getitem__", "__iter__", "__next__", "collate", "collate_fn"})


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communicating():
        if not _runs_per_item(function, analysis):
            continue
        steps = analysis.branches.steps(function.body, function)
        step = next((s for s in steps if s.reach.api.kind in {ApiKind.COLLECTIVE, ApiKind.SETUP}), None)
        if step is not None:
            yield violation(
                CODE,
                f"{name_step(step)} in {function.short} of a data set or sampler: ranks do not run it the same number of times",
                function,
                step.call,
                related=relate(step, function, analysis),
            )


def _runs_per_item(function: Function, analysis: Analysis) -> bool:
    if function.short not in _PER_ITEM or function.owner is None:
        return False
    bases = [b for b in analysis.resolver.ancestors(function.owner) if isinstance(b, str)]
    return any(b.startswith("torch.utils.data") and b.rpartition(".")[2] in _BASES for b in bases)


RULE = LintRule(
    code=CODE,
    title="a collective in a data set or sampler",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch.distributed as dist
from torch.utils.data import Sampler

class Buckets(Sampler):
    def __iter__(self):
        for batch in self.batches:
            dist.barrier()
            yield batch
""",
    silent_in="""\
import torch.distributed as dist
from torch.utils.data import Sampler

class Buckets(Sampler):
    def __init__(self, count):
        dist.all_reduce(count)
        self.count = count

    def __iter__(self):
        yield from range(self.count)
""",
)
