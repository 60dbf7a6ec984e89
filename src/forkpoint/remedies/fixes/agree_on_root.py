"""Take the root of a collective from rank 0 instead of computing it on each rank.

`src` and `dst` must be the same on all ranks. The value of rank 0 is broadcast where it is computed, so everything that
depends on it agrees too.
"""

import ast

from forkpoint.model.verdict import Fix
from forkpoint.remedies.edit import definitions, free_name, wrapping
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import OF_RANK_0, torch_names
from forkpoint.remedies.together import come_together
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.syntax import block_of, shortened, statement_of


def offer(fork: Fork, scene: Scene) -> Fix | None:
    call = fork.node
    if fork.kind is not ForkKind.ARGUMENT or not isinstance(call, ast.Call) or not scene.in_default_group:
        return None
    root = next((k.value for k in call.keywords if k.arg in {"src", "dst"}), None)
    if root is None or root is not fork.test or not come_together(call, fork.function, scene.analysis):
        return None
    made = _made(root, fork) or root
    module = fork.function.module
    name = free_name("of_rank_0", module)
    text = OF_RANK_0.format(name=name, **torch_names(module).fields)
    patch = scene.patch(module, [definitions(module, [text]), *wrapping(made, f"{name}(", ")")])
    title = f"Use rank 0's value of `{shortened(module.source(made))}` ({scene.where(module, made)}) on all ranks."
    return Fix(title, patch) if patch else None


def _made(root: ast.expr, fork: Fork) -> ast.expr | None:
    """The only value that is assigned to the variable, if that is in the same block as the call."""
    values = [
        a.value
        for a in fork.function.own.assignments
        if isinstance(a, ast.Assign)
        and isinstance(root, ast.Name)
        and [t.id for t in a.targets if isinstance(t, ast.Name)] == [root.id]
    ]
    call = statement_of(fork.node, fork.function)
    if len(values) != 1 or call is None:
        return None
    holder = statement_of(values[0], fork.function)
    return values[0] if holder in block_of(call, fork.function) else None
