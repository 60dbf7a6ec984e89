"""A branch that can differ by rank, with a call on one side that leads to a collective.

The call looks harmless (reading a metric, saving a checkpoint, a log line), and the collective is in another function
or file. Only some ranks reach it, and wait for the others.

Call it on all ranks and use the result on one, or make the decision equal first.

Not reported: what `collective-under-branch` does not report.
"""

from collections.abc import Iterator

from forkpoint.lint.decisions import only_on_one_rank, relate, unequal_branches, unequal_violation, violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind
from forkpoint.source.branches import name_step

CODE = "call-under-branch"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for unequal in unequal_branches(analysis):
        step = unequal.steps[0]
        if unequal.leaves is not None or step.reach.through is None or step.reach.api.kind is ApiKind.SETUP:
            continue
        message = f"{name_step(step)}, is called on one side of a branch that ranks can take differently"
        yield unequal_violation(CODE, message, unequal, analysis)
    for function, step in only_on_one_rank(analysis):
        if step.reach.through is not None:
            message = f"{name_step(step)} in a function that its decorator runs on one rank only"
            yield violation(CODE, message, function, step.call, related=relate(step, function, analysis))


RULE = LintRule(
    code=CODE,
    title="a call that leads to a collective is made on some ranks only",
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
