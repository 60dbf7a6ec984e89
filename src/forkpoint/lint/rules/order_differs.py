"""One collective per element of something whose order or keys can differ by rank.

The order of a set of strings differs between processes (hashes are seeded), and that of a directory listing between
nodes. The ranks then reduce different things with each other: wrong numbers if the sizes agree, a hang if they do not.

Iterate over `sorted(...)`, and over keys that are the same on all ranks.

Not reported: lists, `sorted(...)`, and dictionaries unless their keys are seen to differ.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.lint.decisions import relate, violation
from forkpoint.lint.rule import LineEdit, LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind, Origin, Strength
from forkpoint.source.branches import name_step
from forkpoint.source.code import Function
from forkpoint.source.syntax import Rounds, is_over_names, last_word, rounds
from forkpoint.source.value import NO_REASONS, strength_of

CODE = "order-differs"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in (*analysis.communicating(), *analysis.communication.doubtful):
        for loop in rounds(function):
            if isinstance(loop.node, ast.While):
                continue
            steps = [s for s in analysis.branches.steps(loop.body, function) if s.reach.api.kind is not ApiKind.SETUP]
            steps = steps or list(analysis.branches.doubtful_steps(loop.body, function))
            extent = analysis.differences.test(loop.head, function).extent if steps else NO_REASONS
            reasons = frozenset(r for r in extent if r.origin is Origin.ORDER)
            if reasons:
                found = violation(
                    CODE,
                    f"{name_step(steps[0])} once per element, in an order that can differ by rank",
                    function,
                    loop.node,
                    condition=loop.head,
                    reasons=reasons,
                    related=relate(steps[0], function, analysis),
                    advisory=strength_of(reasons) is Strength.POSSIBLE,
                )
                yield _with_edit(found, loop, function)


def _with_edit(found: Violation, loop: Rounds, function: Function) -> Violation:
    head = loop.head
    if head.lineno != head.end_lineno or last_word(head) == "sorted" or not is_over_names(loop.node):
        return found
    line = function.module.lines[head.lineno - 1]
    text = line[: head.col_offset] + b"sorted(" + line[head.col_offset : head.end_col_offset] + b")"
    changed = (text + line[head.end_col_offset :]).decode("utf-8", "replace")
    return replace(found, edit=LineEdit("iterate in sorted order", head.lineno, head.lineno, f"{changed}\n"))


RULE = LintRule(
    code=CODE,
    title="a collective per element in an order that can differ by rank",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch.distributed as dist

def reduce_all(stats):
    for name in set(stats):
        dist.all_reduce(stats[name])
""",
    silent_in="""\
import torch.distributed as dist

def reduce_all(stats):
    for name in sorted(set(stats)):
        dist.all_reduce(stats[name])
""",
)
