"""A `return`, `continue` or `break` that some ranks can take before a collective that the others call.

A batch skipped because of a NaN, a loop that one rank leaves because its own metric stopped improving, an early return
because this rank has nothing to do: the rank is gone when the others call the collective.

Reduce the flag over all ranks before acting on it.

Not reported: conditions that are equal on all ranks (constants, configuration, results of a collective), exits after
which nothing communicates, and `raise`.
"""

from collections.abc import Iterator

from forkpoint.lint.decisions import unequal_branches, unequal_violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.branches import name_step

CODE = "exit-before-collective"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for unequal in unequal_branches(analysis):
        if unequal.leaves is None:
            continue
        step = unequal.steps[0]
        message = f"some ranks can `{unequal.leaves}` here while the others go on to {name_step(step)}"
        yield unequal_violation(CODE, message, unequal, analysis)


RULE = LintRule(
    code=CODE,
    title="some ranks can leave before a collective",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch
import torch.distributed as dist

def train(loader, model):
    for batch in loader:
        loss = model(batch)
        if torch.isnan(loss):
            continue
        loss.backward()
""",
    silent_in="""\
import torch
import torch.distributed as dist

def train(loader, model):
    for batch in loader:
        loss = model(batch)
        bad = torch.isnan(loss).float()
        dist.all_reduce(bad)
        if bad > 0:
            continue
        loss.backward()
""",
)
