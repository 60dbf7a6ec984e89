"""A collective on one side of a branch whose condition can differ by rank.

Ranks on that side wait in the collective for ranks that never call it. A condition on `.item()`, a NaN check, a clock,
free memory or an exception is as dangerous as a condition on the rank: it differs rarely, but it does.

Make the decision equal first (reduce or broadcast the flag), or move the collective out of the branch.

Not reported: branches whose sides do the same communication; the pair `if rank != 0: barrier()` ... `if rank == 0:
barrier()`; conditions on the rank around a collective with a group of its own, which may select just its members; a
side that raises.
"""

from collections.abc import Iterator

from forkpoint.lint.decisions import only_on_one_rank, relate, unequal_branches, unequal_violation, violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind
from forkpoint.source.branches import name_step

CODE = "collective-under-branch"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for unequal in unequal_branches(analysis):
        step = unequal.steps[0]
        if unequal.leaves is not None or step.reach.through is not None or step.reach.api.kind is ApiKind.SETUP:
            continue
        message = f"{name_step(step)} on one side of a branch that ranks can take differently: the others never call it"
        yield unequal_violation(CODE, message, unequal, analysis)
    for function, step in only_on_one_rank(analysis):
        if step.reach.through is None:
            message = f"{name_step(step)} in a function that its decorator runs on one rank only"
            yield violation(CODE, message, function, step.call, related=relate(step, function, analysis))


RULE = LintRule(
    code=CODE,
    title="a collective on one side of a branch that can differ by rank",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch
import torch.distributed as dist

def clip(grads, limit):
    norm = torch.stack([g.norm() for g in grads]).norm()
    if torch.isfinite(norm):
        dist.all_reduce(norm)
    return norm
""",
    silent_in="""\
import torch
import torch.distributed as dist

def clip(grads, limit):
    norm = torch.stack([g.norm() for g in grads]).norm()
    dist.all_reduce(norm)
    if torch.isfinite(norm):
        dist.all_reduce(norm)
    return norm
""",
)
