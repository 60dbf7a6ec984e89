"""Gather tensors whose first dimension differs by rank: pad, gather, and cut to size.

The lengths are gathered first. For `all_gather(parts, local)` with a list that is filled in place.
"""

import ast

from forkpoint.model.verdict import Fix
from forkpoint.remedies.edit import definitions, free_name, replacement
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import GATHER_UNEVEN, torch_names
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.syntax import statement_of

_PASSED_ON = frozenset({"group"})


def offer(fork: Fork, scene: Scene) -> Fix | None:
    call = fork.node
    if fork.kind is not ForkKind.ARGUMENT or not isinstance(call, ast.Call) or len(call.args) != 2:
        return None
    api = scene.analysis.communication.api(call, fork.function)
    whole = statement_of(call, fork.function)
    alone = isinstance(whole, ast.Expr) and whole.value is call
    if api is None or api.op != "all_gather" or not alone or {k.arg for k in call.keywords} - _PASSED_ON:
        return None
    if not isinstance(call.args[0], ast.Name) or fork.test not in call.args:
        return None
    module = fork.function.module
    name = free_name("all_gather_uneven", module)
    text = GATHER_UNEVEN.format(name=name, **torch_names(module).fields)
    patch = scene.patch(module, [definitions(module, [text]), replacement(call.func, name)])
    where = scene.where(module, call)
    title = f"Gather the lengths first, pad to the longest ({where}), and cut the results to size."
    return Fix(title, patch) if patch else None
