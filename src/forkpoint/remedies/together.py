"""Do all ranks reach a place, the same number of times and in the same order? Only there can they be compared, or agree."""

import ast
from collections.abc import Iterator

from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin, Strength, is_rank_word
from forkpoint.source.branches import Branch, skipped
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.code import Class, Function
from forkpoint.source.flow import exit_of
from forkpoint.source.syntax import ancestors, last_word
from forkpoint.source.value import Reasons, strength_of

_DEPTH = 6
"""Levels of callers. Further up is the entry of the job, which all ranks run."""
_NAMES = 3
"""Assignments or calls to follow from a condition to its value."""


def meet(
    node: ast.AST,
    function: Function,
    analysis: Analysis,
    *,
    equally_often: bool = False,
    but_for: ast.AST | None = None,
    depth: int = _DEPTH,
) -> bool:
    """False if the source shows that some ranks may not reach it, apart from the branch `but_for`, which is the suspect.
    True only means that the source does not show it.

    `equally_often`: nor may any reach it more often than others. A probe does without that; a fix needs it.
    """
    if _is_under_difference(node, function, analysis, but_for) or parted_before(node, function, analysis, but_for):
        return False
    if equally_often and _is_in_uneven_loop(node, function, analysis):
        return False
    sites = analysis.resolver.call_sites(function) if depth else ()
    return all(
        meet(call, caller, analysis, equally_often=equally_often, but_for=but_for, depth=depth - 1)
        for call, caller in sites
        if caller is not function
    )


def asks_for_rank(test: ast.expr, function: Function, analysis: Analysis, depth: int = _NAMES) -> bool:
    """`rank == 0`, `is_main_process()`, or `self.enabled` with `self.enabled = rank == 0`: it differs on purpose."""
    if depth == 0:
        return False
    match test:
        case ast.UnaryOp():
            return asks_for_rank(test.operand, function, analysis, depth)
        case ast.BoolOp():
            return any(asks_for_rank(value, function, analysis, depth) for value in test.values)
        case ast.Compare():
            return any(is_rank_word(last_word(side)) for side in (test.left, *test.comparators))
        case ast.Name() | ast.Attribute() | ast.Call():
            made = made_of(test, function, analysis)
            return is_rank_word(last_word(test)) or any(asks_for_rank(e, f, analysis, depth - 1) for e, f in made)
        case _:
            return False


def is_paired(fork: Fork, analysis: Analysis) -> bool:
    """`if rank != 0: barrier()` ... `if rank == 0: barrier()`: another branch on the rank makes the same call, so ranks may
    differ here.
    """
    key = fork.step.key if fork.step else None
    return key is not None and any(
        branch.node is not fork.node
        and asks_for_rank(branch.test, fork.function, analysis)
        and any(step.key == key for arm in branch.arms for step in arm.steps)
        for branch in analysis.branches.of(fork.function)
    )


def made_of(expr: ast.expr, function: Function, analysis: Analysis) -> Iterator[tuple[ast.expr, Function]]:
    """What is assigned to a variable or attribute, or returned by a call."""
    resolver = analysis.resolver
    if isinstance(expr, ast.Name):
        yield from ((value, function) for value in resolver.assigned(function).get(expr.id, ()))
    elif isinstance(expr, ast.Attribute):
        owner = resolver.class_of(expr.value, function)
        yield from resolver.attributes(owner).get(expr.attr, ()) if isinstance(owner, Class) else ()
    elif isinstance(expr, ast.Call):
        for callee in resolver.callees(expr, function).functions:
            yield from ((r.value, callee) for r in callee.own.returns if r.value is not None)


def _is_under_difference(node: ast.AST, function: Function, analysis: Analysis, but_for: ast.AST | None) -> bool:
    for outer, inner in ancestors(node, function):
        if isinstance(outer, ast.ExceptHandler):
            return True
        decides = outer.test if isinstance(outer, ast.If | ast.While | ast.IfExp) else None
        if decides is None or inner is decides or outer is but_for:
            continue
        if _counts(analysis.differences.test(decides, function).reasons):
            return True
    return False


def _is_in_uneven_loop(node: ast.AST, function: Function, analysis: Analysis) -> bool:
    return any(
        isinstance(outer, ast.For | ast.AsyncFor)
        and inner is not outer.iter
        and _counts(analysis.differences.test(outer.iter, function).extent)
        for outer, inner in ancestors(node, function)
    )


def parted_before(
    node: ast.AST, function: Function, analysis: Analysis, but_for: ast.AST | None = None
) -> Branch | None:
    """The first branch before it, in the same function, after which some ranks may not reach it."""
    around = {outer for outer, _ in ancestors(node, function)} | {node, but_for}
    line = getattr(node, "lineno", 0)
    return next(
        (
            branch
            for branch in analysis.branches.of(function)
            if branch.node.lineno < line
            and branch.node not in around
            and _parts(branch)
            and _counts(analysis.differences.test(branch.test, function).reasons)
        ),
        None,
    )


def is_about_order(node: ast.AST, function: Function, analysis: Analysis) -> bool:
    """All arms of the branch make the same calls, in different orders."""
    branch = analysis.branches.at(node, function)
    keys = [[step.key for step in arm.steps] for arm in branch.arms] if branch else [[]]
    return bool(keys[0]) and all(sorted(k) == sorted(keys[0]) for k in keys) and any(k != keys[0] for k in keys)


def matters(fork: Fork, analysis: Analysis) -> bool:
    """Some communication depends on the branch: it is in an arm, or an arm leaves before it."""
    branch = analysis.branches.at(fork.node, fork.function)
    if fork.step is not None or branch is None:
        return fork.step is not None
    return any(arm.steps or any(skipped(branch, way) for way in arm.may_leave) for arm in branch.arms)


def leaves(node: ast.If | ast.While) -> bool:
    """One of its arms ends with `return`, `continue` or `break`."""
    return bool({exit_of(node.body), exit_of(node.orelse)} & {"return", "continue", "break"})


def _parts(branch: Branch) -> bool:
    """Its arms do not reach the same place with the same communication done. Communication in a named group does not
    count: it holds up nobody else.
    """
    arms = [arm for arm in branch.arms if arm.leaves != "raise"]
    return (
        any(arm.may_leave for arm in arms) or len({tuple(s.key for s in arm.steps if not s.group) for arm in arms}) > 1
    )


def _counts(reasons: Reasons) -> bool:
    return strength_of(reasons) in {Strength.CERTAIN, Strength.LIKELY}


def unordered_loop(fork: Fork, analysis: Analysis) -> ast.For | None:
    """The loop of the fork, or the nearest loop around it, over a set or a directory listing."""
    if fork.kind is not ForkKind.ORDER:
        return None
    around = (fork.node, *(outer for outer, _ in ancestors(fork.node, fork.function)))
    return next((n for n in around if isinstance(n, ast.For) and _is_unordered(n, fork, analysis)), None)


def _is_unordered(loop: ast.For, fork: Fork, analysis: Analysis) -> bool:
    reasons = analysis.differences.test(loop.iter, fork.function).reasons
    made = (expr for expr, _ in made_of(loop.iter, fork.function, analysis))
    return any(r.origin in {Origin.ORDER, Origin.FILES} for r in reasons) or any(_is_set(e) for e in (loop.iter, *made))


def _is_set(expr: ast.expr) -> bool:
    called = last_word(expr) in {"set", "frozenset"} if isinstance(expr, ast.Call) else False
    return called or isinstance(expr, ast.Set | ast.SetComp)
