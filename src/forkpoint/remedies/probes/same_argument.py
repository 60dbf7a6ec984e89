"""Compare the argument that ranks pass to the same call.

Tensors are compared by shape and type, lists by their elements, anything else by its `repr`. The call itself stays.
"""

import ast

from forkpoint.model.verdict import Probe
from forkpoint.remedies.edit import definitions, wrapping
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import SAME
from forkpoint.remedies.together import meet
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.syntax import last_word, shortened

_ALIKE = frozenset({
    "all_reduce", "all_gather", "all_gather_into_tensor", "broadcast", "reduce", "reduce_scatter", "reduce_scatter_tensor",
})  # fmt: skip


def offer(fork: Fork, scene: Scene) -> Probe | None:
    call, passed = fork.node, fork.test
    if fork.kind is not ForkKind.ARGUMENT or not isinstance(call, ast.Call) or passed is None or scene.members is None:
        return None
    if isinstance(passed, ast.Starred) or not _is_alike_everywhere(call, passed, fork, scene):
        return None
    if not meet(call, fork.function, scene.analysis):
        return None
    module = fork.function.module
    where, text = scene.where(module, call), shortened(module.source(passed))
    what = f"`{text}` of {last_word(call)} ({where})"
    edits = wrapping(passed, f"_forkpoint_same({what!r}, ", f"{scene.members})")
    patch = scene.patch(module, [definitions(module, [SAME]), *edits])
    title = (
        f"Compare `{text}` between ranks before {last_word(call)}: the job stops at the first call where it differs."
    )
    return Probe(title, where, patch) if patch else None


def _is_alike_everywhere(call: ast.Call, passed: ast.expr, fork: Fork, scene: Scene) -> bool:
    """For most collectives every argument must be the same; for the others only the root."""
    api = scene.analysis.communication.api(call, fork.function)
    is_root = any(k.value is passed and k.arg in {"src", "dst"} for k in call.keywords)
    return api is not None and (api.op in _ALIKE or is_root)
