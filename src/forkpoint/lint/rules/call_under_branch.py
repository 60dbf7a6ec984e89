"""A call on one side of a branch that can differ by rank, to something that communicates further down.

The call looks harmless (a metric that is read, a checkpoint that is saved, a log line), and the collective is in
another function or file. Only some ranks come to it; they wait for the others.

Call it on all ranks and use the result on one, or make the decision equal first.

Left alone: what is left alone by `collective-under-branch`.
"""

from collections.abc import Iterator

from forkpoint.lint.decisions import unequal_branches
from forkpoint.lint.describe import unequal_violation
from forkpoint.lint.rule import Rule
from forkpoint.lint.violation import Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Kind
from forkpoint.source.tell import name_step

CODE = "call-under-branch"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for unequal in unequal_branches(analysis):
        step = unequal.steps[0]
        if unequal.leaves is not None or step.reach.through is None or step.reach.api.kind is Kind.SETUP:
            continue
        message = f"{name_step(step)}, is called on one side of a branch that ranks can take differently"
        yield unequal_violation(CODE, message, unequal, analysis)


RULE = Rule(
    code=CODE,
    title="something that communicates is called on some ranks only",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch.distributed as dist

class Mean:
    def read(self):
        dist.all_reduce(self.total)
        return self.total

def report(step, mean: Mean):
    if dist.get_rank() == 0:
        print(step, mean.read())
""",
    silent_in="""\
import torch.distributed as dist

class Mean:
    def read(self):
        dist.all_reduce(self.total)
        return self.total

def report(step, mean: Mean):
    value = mean.read()
    if dist.get_rank() == 0:
        print(step, value)
""",
)
