"""Phrases that the sentences of all forks share."""

import ast

from forkpoint.source.code import Function
from forkpoint.source.syntax import BranchOrLoop, shortened, spans, test_of
from forkpoint.source.tell import tell_reason
from forkpoint.source.value import Reasons


def tell_condition(test: ast.expr | None, function: Function) -> str:
    return f"`{shortened(function.module.source(test))}`" if test is not None else "any exception"


def because(reasons: Reasons) -> str:
    """The strongest reason, as the end of a sentence."""
    best = min(reasons, key=lambda r: r.key, default=None)
    return f"; {tell_reason(best)}" if best else ""


def tell_decision(node: BranchOrLoop, line: int, who: str, function: Function) -> str:
    """What these ranks decided to get to a line inside a branch or loop."""
    condition = tell_condition(test_of(node), function)
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return f"the loop over {condition} led {who} here"
    in_else = isinstance(node, ast.If) and spans(node.orelse, line)
    return f"{condition} was {'false' if in_else else 'true'} on {who}"
