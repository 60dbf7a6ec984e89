"""Check at the collective which ranks reach it, in which step and with what arguments.

One line before the call compares the step, and the shape and type of the argument, over the store. Waiting ranks name
those that do not arrive within ten seconds.
"""

import ast
from collections.abc import Iterator

from forkpoint.model.incident import PartingKind, Role
from forkpoint.model.verdict import Probe
from forkpoint.remedies.edit import definitions, line_before
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import SAME
from forkpoint.remedies.together import is_paired, meet
from forkpoint.source.apis import ApiKind
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.code import Function, spelled
from forkpoint.source.syntax import ancestors, last_word, statement_of

_KINDS = frozenset({ForkKind.SKIPPED, ForkKind.LEFT, ForkKind.CAUGHT, ForkKind.HELD})


def offer(fork: Fork, scene: Scene) -> Probe | None:
    place = _missed(fork, scene) or _waited_in(scene)
    if fork.kind not in _KINDS or place is None or scene.members is None or is_paired(fork, scene.analysis):
        return None
    call, function = place
    statement = statement_of(call, function)
    if statement is None or not meet(call, function, scene.analysis, but_for=fork.node):
        return None
    module = function.module
    where = scene.where(module, statement)
    what = f"{last_word(call)} ({where})"
    itself = scene.analysis.communication.api(call, function) is not None
    passed = spelled(call.args[0]) if call.args and itself else None
    values = ", ".join([*_counters(call, function), *([passed] if passed else [])])
    text = f"_forkpoint_same({what!r}, [{values}]{scene.members})  # forkpoint probe"
    patch = scene.patch(module, [definitions(module, [SAME]), line_before(statement, text, module)])
    title = f"Check before {last_word(call)} which ranks reach it: those that are missing after ten seconds are named."
    return Probe(title, where, patch) if patch else None


def _missed(fork: Fork, scene: Scene) -> tuple[ast.Call, Function] | None:
    """The call that the fork skips: in a loop with a counter, if there is one, else the collective itself."""
    step = fork.step
    if step is None or step.reach.api.kind is not ApiKind.COLLECTIVE:
        return None
    deeper = scene.analysis.communication.path(step.reach)
    if not deeper or list(_counters(step.call, fork.function)):
        return step.call, fork.function
    return deeper[-1][1], deeper[-1][0]


def _waited_in(scene: Scene) -> tuple[ast.Call, Function] | None:
    """The collective in which the others wait, according to their stacks."""
    absent = scene.divergence is not None and scene.divergence.how is PartingKind.ABSENCE
    cohorts = scene.divergence.cohorts if scene.divergence and absent else ()
    for frame in (f for c in cohorts if c.role is Role.WAITING for f in c.stack or ()):
        module = scene.analysis.program.module_at(frame.filename)
        for function in module.functions.values() if module else ():
            for call in function.calls:
                api = scene.analysis.communication.api(call, function)
                if api is not None and api.kind is ApiKind.COLLECTIVE and call.lineno == frame.line:
                    return call, function
    return None


def _counters(node: ast.AST, function: Function) -> Iterator[str]:
    """Loop counters around it, outermost last."""
    for outer, _ in ancestors(node, function):
        if isinstance(outer, ast.For) and isinstance(outer.iter, ast.Call):
            counted = last_word(outer.iter)
            target = outer.target.elts[0] if isinstance(outer.target, ast.Tuple) else outer.target
            if counted in {"range", "enumerate"} and isinstance(target, ast.Name) and target.id != "_":
                yield target.id
