"""Compare a decision between ranks, before any rank acts on it.

The condition is evaluated once, as before, and compared over the store. The job stops in the round in which ranks decide
differently, and shows the condition and its value on each rank. Offered only if the source does not show that a rank may
not reach the condition.
"""

import ast

from forkpoint.model.verdict import Probe
from forkpoint.remedies.edit import definitions, wrapping
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import SAME
from forkpoint.remedies.together import asks_for_rank, is_paired, leaves, matters, meet, parted_before
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.syntax import shortened

_KINDS = frozenset({ForkKind.SKIPPED, ForkKind.LEFT, ForkKind.ORDER, ForkKind.LOOP})


def offer(fork: Fork, scene: Scene) -> Probe | None:
    node = _first_decision(fork, scene)
    if fork.kind not in _KINDS or node is None or scene.members is None or is_paired(fork, scene.analysis):
        return None
    decides, module = node.test, fork.function.module
    if not matters(fork, scene.analysis) and asks_for_rank(decides, fork.function, scene.analysis):
        # Work of one rank without communication: ranks may differ.
        return None
    if not meet(node, fork.function, scene.analysis):
        return None
    where, text = scene.where(module, node), shortened(module.source(decides))
    what = f"`{text}` ({where})"
    edits = wrapping(decides, f"_forkpoint_same({what!r}, bool(", f"){scene.members})")
    patch = scene.patch(module, [definitions(module, [SAME]), *edits])
    title = f"Compare `{text}` between ranks before acting on it: the job stops where they first decide differently."
    return Probe(title, where, patch) if patch else None


def _first_decision(fork: Fork, scene: Scene) -> ast.If | ast.While | ast.IfExp | None:
    """The decision, or an earlier one after which only some ranks reach it."""
    if not isinstance(fork.node, ast.If | ast.While | ast.IfExp):
        return None
    above = parted_before(fork.node, fork.function, scene.analysis)
    return above.node if above is not None and isinstance(above.node, ast.If) and leaves(above.node) else fork.node
