"""A condition that ranks may decide differently.

Probe: the condition is evaluated once, as before, and compared over the store before any rank acts on it. The job stops in
the round in which ranks decide differently, and shows the value on each rank. Offered only if the source does not show that a
rank may not reach the condition.

Fix: the condition goes through an all_reduce of one flag. If it says that something is bad, missing or at its end, one rank
decides for all; if it says that something exists or is complete, it must be true on all ranks. Not for conditions on the
rank: those differ on purpose.
"""

import ast

from forkpoint.model.verdict import Fix, Probe
from forkpoint.remedies.edit import wrapping
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import SAME, agreement, group_at
from forkpoint.remedies.together import (
    asks_for_rank,
    is_about_order,
    is_paired,
    leaves,
    matters,
    meet,
    parted_before,
)
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.syntax import last_word, shortened

_KINDS = frozenset({ForkKind.SKIPPED, ForkKind.LEFT, ForkKind.ORDER, ForkKind.LOOP})
_PRESENT = frozenset(
    {"all", "exists", "isfile", "is_file", "isdir", "is_dir", "isfinite", "isinstance", "hasattr", "len"}
)
_FEW = frozenset({"any", "isnan", "isinf"})


def compare_decisions(fork: Fork, scene: Scene) -> Probe | None:
    node = _first_decision(fork, scene)
    if fork.kind not in _KINDS or node is None or scene.members is None or is_paired(fork, scene.analysis):
        return None
    decides, module = node.test, fork.function.module
    if not matters(fork, scene.analysis) and asks_for_rank(decides, fork.function, scene.analysis):
        # Work of one rank without communication: ranks may differ.
        return None
    if not meet(node, fork.function, scene.analysis):
        return None
    text = shortened(module.source(decides))
    what = f"`{text}` ({scene.where(module, node)})"
    edits = wrapping(decides, f"_forkpoint_same({what!r}, bool(", f"){scene.members})")
    title = f"Compare `{text}` between ranks before acting on it: the job stops where they first decide differently."
    return scene.probe(title, module, node, edits, [SAME])


def _first_decision(fork: Fork, scene: Scene) -> ast.If | ast.While | ast.IfExp | None:
    """The decision, or an earlier one after which only some ranks reach it."""
    if not isinstance(fork.node, ast.If | ast.While | ast.IfExp):
        return None
    above = parted_before(fork.node, fork.function, scene.analysis)
    return above.node if above is not None and isinstance(above.node, ast.If) and leaves(above.node) else fork.node


def agree_on_decision(fork: Fork, scene: Scene) -> Fix | None:
    node = fork.node
    if fork.kind not in _KINDS or not isinstance(node, ast.If | ast.While):
        return None
    if asks_for_rank(node.test, fork.function, scene.analysis) or not meet(
        node, fork.function, scene.analysis, equally_often=True
    ):
        return None
    if fork.kind is ForkKind.SKIPPED and not (matters(fork, scene.analysis) or leaves(node)):
        return None
    # The order of calls concerns more than one group.
    is_order = is_about_order(node, fork.function, scene.analysis)
    group = "" if is_order else group_at(fork, scene)
    if group is None:
        return None
    module = fork.function.module
    of_all = _asks_for_all(node.test)
    agreed = agreement("all_ranks" if of_all else "any_rank", module, group)
    who = "only if it is true on all ranks" if of_all else "if it is true on one rank"
    text, where = shortened(module.source(node.test)), scene.where(module, node)
    title = (
        f"Agree on `{text}` ({where}) before acting on it: it counts as true {who}. This costs one small all_reduce."
    )
    return scene.fix(title, module, wrapping(node.test, f"{agreed.name}(", f"{agreed.argument})"), [agreed.text])


def _asks_for_all(test: ast.expr) -> bool:
    """The branch needs what the condition tests, so it must be true on every rank that takes the branch."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            word = last_word(test.operand)
            return word in _FEW and not _is_about_values(test.operand)
        case ast.Compare(ops=[ast.IsNot() | ast.In()]):
            return True
        case ast.Compare(left=ast.Call() as call, ops=[ast.Gt()]):
            return last_word(call) == "len"
        case ast.BoolOp(op=ast.And()):
            return any(_asks_for_all(value) for value in test.values)
        case ast.Call():
            return last_word(test) in _PRESENT
        case _:
            return False


def _is_about_values(expr: ast.expr) -> bool:
    """`isfinite(x).any()`: it tests whether numbers are valid."""
    words = {last_word(node) for node in ast.walk(expr) if isinstance(node, ast.Call)}
    return bool(words & {"isnan", "isinf", "isfinite"})
