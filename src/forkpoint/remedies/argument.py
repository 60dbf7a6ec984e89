"""An argument that ranks may pass differently to the same call.

Probe: tensors are compared by shape and type, lists by their elements, anything else by its `repr`. The call itself stays.

Fix for the root: `src` and `dst` must be the same on all ranks. The value of rank 0 is broadcast where it is computed, so
everything that depends on it agrees too.

Fix for sizes: of `all_gather(parts, local)` with a list that is filled in place, the lengths are gathered first; then tensors
are padded, gathered, and cut to size.
"""

import ast

from forkpoint.model.verdict import Fix, Probe
from forkpoint.remedies.edit import free_name, replacement, wrapping
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import GATHER_UNEVEN, OF_RANK_0, SAME, torch_names
from forkpoint.remedies.together import meet
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.syntax import block_of, last_word, shortened, statement_of

_ALIKE = frozenset({
    "all_reduce", "all_gather", "all_gather_into_tensor", "broadcast", "reduce", "reduce_scatter", "reduce_scatter_tensor",
})  # fmt: skip
_PASSED_ON = frozenset({"group"})


def compare_arguments(fork: Fork, scene: Scene) -> Probe | None:
    call, passed = fork.node, fork.test
    if fork.kind is not ForkKind.ARGUMENT or not isinstance(call, ast.Call) or passed is None or scene.members is None:
        return None
    if isinstance(passed, ast.Starred) or not _is_alike_everywhere(call, passed, fork, scene):
        return None
    if not meet(call, fork.function, scene.analysis):
        return None
    module = fork.function.module
    text = shortened(module.source(passed))
    what = f"`{text}` of {last_word(call)} ({scene.where(module, call)})"
    edits = wrapping(passed, f"_forkpoint_same({what!r}, ", f"{scene.members})")
    title = (
        f"Compare `{text}` between ranks before {last_word(call)}: the job stops at the first call where it differs."
    )
    return scene.probe(title, module, call, edits, [SAME])


def _is_alike_everywhere(call: ast.Call, passed: ast.expr, fork: Fork, scene: Scene) -> bool:
    """For most collectives every argument must be the same; for the others only the root."""
    api = scene.analysis.communication.api(call, fork.function)
    is_root = any(k.value is passed and k.arg in {"src", "dst"} for k in call.keywords)
    return api is not None and (api.op in _ALIKE or is_root)


def agree_on_root(fork: Fork, scene: Scene) -> Fix | None:
    call = fork.node
    if fork.kind is not ForkKind.ARGUMENT or not isinstance(call, ast.Call) or not scene.in_default_group:
        return None
    root = next((k.value for k in call.keywords if k.arg in {"src", "dst"}), None)
    if root is None or root is not fork.test or not meet(call, fork.function, scene.analysis, equally_often=True):
        return None
    made = _made(root, fork) or root
    module = fork.function.module
    name = free_name("of_rank_0", module)
    text = OF_RANK_0.format(name=name, **torch_names(module).fields)
    title = f"Use rank 0's value of `{shortened(module.source(made))}` ({scene.where(module, made)}) on all ranks."
    return scene.fix(title, module, wrapping(made, f"{name}(", ")"), [text])


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


def pad_before_gather(fork: Fork, scene: Scene) -> Fix | None:
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
    title = f"Gather the lengths first, pad to the longest ({scene.where(module, call)}), and cut the results to size."
    return scene.fix(title, module, [replacement(call.func, name)], [text])
