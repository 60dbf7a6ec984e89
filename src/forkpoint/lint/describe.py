"""Violations with their places: where the collective is, and why a condition can differ."""

import ast

from forkpoint.lint.decisions import UnequalBranch
from forkpoint.lint.violation import Related, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.branches import Branch, CommStep
from forkpoint.source.code import Function
from forkpoint.source.syntax import shortened
from forkpoint.source.tell import name_step, tell_reason
from forkpoint.source.value import Reasons

_MAX_CONDITION = 120


def violation(  # noqa: PLR0913 a violation has this many parts, most given by name
    rule: str,
    message: str,
    function: Function,
    node: ast.stmt | ast.expr | ast.ExceptHandler,
    *,
    condition: ast.expr | None = None,
    reasons: Reasons = frozenset(),
    related: tuple[Related, ...] = (),
    advisory: bool = False,
) -> Violation:
    best = min(reasons, key=lambda r: r.key, default=None)
    begins = (Related(best.file, best.line, f"`{best.expression}`: {best.text}"),) if best else ()
    return Violation(
        rule=rule,
        file=function.module.path,
        line=node.lineno,
        end_line=head_end(node),
        column=node.col_offset + 1,
        function=function.name,
        message=message,
        condition=shortened(function.module.source(condition), _MAX_CONDITION) if condition is not None else None,
        why=tell_reason(best) if best else None,
        related=(*related, *begins),
        advisory=advisory,
    )


def unequal_violation(rule: str, message: str, unequal: UnequalBranch, analysis: Analysis) -> Violation:
    """At the call that some ranks skip, or the statement that leaves; advisory if the reasons are weak."""
    function = unequal.branch.function
    return violation(
        rule,
        message,
        function,
        unequal.at,
        condition=unequal.branch.test,
        reasons=unequal.reasons,
        related=(branch_at(unequal.branch), *relate(unequal.steps[0], function, analysis)),
        advisory=unequal.is_possible_only or unequal.is_membership,
    )


def head_end(node: ast.stmt | ast.expr | ast.ExceptHandler) -> int:
    """The last line of a statement's head: the condition, not the block below it."""
    head = getattr(node, "test", None) or getattr(node, "iter", None) or getattr(node, "subject", None)
    if head is None and hasattr(node, "body"):
        return node.lineno
    return (head or node).end_lineno or node.lineno


def relate(step: CommStep, function: Function, analysis: Analysis) -> tuple[Related, ...]:
    """The call, and the collective it leads to."""
    here = Related(function.module.path, step.call.lineno, f"{name_step(step)} is called here")
    path = analysis.communication.path(step.reach)
    if not path:
        return (here,)
    last, call = path[-1]
    return (here, Related(last.module.path, call.lineno, f"{step.reach.api.op} in {last.name}"))


def branch_at(branch: Branch) -> Related:
    return Related(branch.function.module.path, branch.node.lineno, "the branch")
