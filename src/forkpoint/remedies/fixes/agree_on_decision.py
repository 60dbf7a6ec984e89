"""Agree on a decision before any rank acts on it.

The condition goes through an all_reduce of one flag. If the condition says that something is bad, missing or at its
end, one rank decides for all; if it says that something exists or is complete, it must be true on all ranks. Not for
conditions on the rank: those differ on purpose.
"""

import ast

from forkpoint.model.verdict import Fix
from forkpoint.remedies.edit import definitions, wrapping
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import agreement, group_at
from forkpoint.remedies.together import asks_for_rank, come_together, is_about_order, leaves, matters
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.syntax import last_word, shortened

_KINDS = frozenset({ForkKind.SKIPPED, ForkKind.LEFT, ForkKind.ORDER, ForkKind.LOOP})
_PRESENT = frozenset(
    {"all", "exists", "isfile", "is_file", "isdir", "is_dir", "isfinite", "isinstance", "hasattr", "len"}
)
_FEW = frozenset({"any", "isnan", "isinf"})


def offer(fork: Fork, scene: Scene) -> Fix | None:
    node = fork.node
    if fork.kind not in _KINDS or not isinstance(node, ast.If | ast.While):
        return None
    if asks_for_rank(node.test, fork.function, scene.analysis) or not come_together(
        node, fork.function, scene.analysis
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
    edits = wrapping(node.test, f"{agreed.name}(", f"{agreed.argument})")
    patch = scene.patch(module, [definitions(module, [agreed.text]), *edits])
    who = "only if it is true on all ranks" if of_all else "if it is true on one rank"
    text, where = shortened(module.source(node.test)), scene.where(module, node)
    title = (
        f"Agree on `{text}` ({where}) before acting on it: it counts as true {who}. This costs one small all_reduce."
    )
    return Fix(title, patch) if patch else None


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
