"""A collective in a loop that can run a different number of times on each rank.

A rank that runs out of batches, files or keys leaves the loop; the others wait in the next round. The most common form
is uneven data: the last batches of a sharded data set.

Agree on the number of rounds (reduce the minimum or maximum, drop the last batch, `join` on uneven inputs).

Not reported: `for batch in loader` around forward and backward passes only, because that is every training loop and
samplers usually make the lengths equal; loops over values that are equal on all ranks.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import relate, violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind, Origin, Strength
from forkpoint.source.branches import CommStep, name_step
from forkpoint.source.syntax import Comprehension, Rounds, rounds
from forkpoint.source.value import Reasons, strength_of

CODE = "loop-count-differs"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communicating():
        for loop in rounds(function):
            steps = analysis.branches.steps(loop.body, function)
            step = next((s for s in steps if _is_explicit(s)), None)
            if step is None and isinstance(loop.node, ast.While):
                # A `while` condition decides the number of rounds explicitly, so implicit communication in its body counts too.
                step = next((s for s in steps if s.reach.api.kind is ApiKind.IMPLICIT), None)
            if step is None:
                continue
            value = analysis.differences.test(loop.head, function)
            reasons = value.reasons if isinstance(loop.node, ast.While) else value.extent
            reasons = frozenset(r for r in reasons if r.origin is not Origin.ORDER)
            if reasons:
                yield violation(
                    CODE,
                    f"{name_step(step)} in a loop that ranks can run a different number of times",
                    function,
                    loop.node,
                    condition=loop.head,
                    reasons=reasons,
                    related=relate(step, function, analysis),
                    advisory=_is_weak(reasons, step) or _is_choice(loop, reasons),
                )


def _is_explicit(step: CommStep) -> bool:
    return step.reach.api.kind is ApiKind.COLLECTIVE


def _is_choice(loop: Rounds, reasons: Reasons) -> bool:
    """A comprehension whose input differs only by the rank number usually has the same length on all ranks."""
    return isinstance(loop.node, Comprehension) and all(r.origin is Origin.RANK for r in reasons)


def _is_weak(reasons: Reasons, step: CommStep) -> bool:
    # The rank's position decides how many rounds its group makes: as many on all of its members.
    of_rank = all(r.origin is Origin.RANK for r in reasons) and step.group is not None
    return strength_of(reasons) is Strength.POSSIBLE or of_rank


RULE = LintRule(
    code=CODE,
    title="a collective in a loop whose length can differ by rank",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch.distributed as dist

def drain(queue, total):
    while not queue.empty():
        total += queue.get()
        dist.all_reduce(total)
""",
    silent_in="""\
import torch.distributed as dist

def drain(rounds, queue, total):
    for _ in range(rounds):
        total += queue.get()
        dist.all_reduce(total)
""",
)
