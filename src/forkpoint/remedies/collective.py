"""A collective that only some ranks reach.

Probe: one line before the call compares the step, and the shape and type of the argument, over the store. Waiting ranks name
those that do not arrive within ten seconds.

Fix: every rank makes the call before the branch, and the branch uses the result. Only if the call does not depend on anything
else in the branch. A call whose result is not used is moved as a whole, unless it seems to write something, which must not
happen on all ranks.
"""

import ast
from collections.abc import Iterator

from forkpoint.model.incident import PartingKind, Role
from forkpoint.model.verdict import Fix, Probe
from forkpoint.remedies.edit import TextEdit, end_of, free_name, indent_of, insertion, line_before, replacement
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.snippets import SAME
from forkpoint.remedies.together import asks_for_rank, is_paired, meet
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.code import Function, Module, spelled
from forkpoint.source.syntax import ancestors, last_word, names_in, names_set_in, shortened, statement_of

_KINDS = frozenset({ForkKind.SKIPPED, ForkKind.LEFT, ForkKind.CAUGHT, ForkKind.HELD})
_KEPT = (
    ast.Call | ast.keyword | ast.Attribute | ast.Subscript | ast.BinOp | ast.UnaryOp | ast.Tuple | ast.List | ast.Dict
    | ast.JoinedStr | ast.FormattedValue | ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign
)  # fmt: skip
"""Nodes allowed between the call and the branch: all of them are evaluated whenever the branch is taken."""
_WRITING = frozenset({
    "save", "write", "writer", "dump", "open", "makedirs", "mkdir", "remove", "unlink", "rename", "replace", "upload", "put",
    "post", "push", "send", "touch", "rmtree", "symlink", "copy", "copyfile", "move", "scalar", "scalars", "track",
})  # fmt: skip
_DEPTH = 4
_LOGGING = frozenset({"debug", "info", "warning", "error", "print", "log"})


def see_who_arrives(fork: Fork, scene: Scene) -> Probe | None:
    place = _missed(fork, scene) or _waited_in(scene)
    if fork.kind not in _KINDS or place is None or scene.members is None or is_paired(fork, scene.analysis):
        return None
    call, function = place
    statement = statement_of(call, function)
    if statement is None or not meet(call, function, scene.analysis, but_for=fork.node):
        return None
    module = function.module
    what = f"{last_word(call)} ({scene.where(module, statement)})"
    itself = scene.analysis.communication.api(call, function) is not None
    passed = spelled(call.args[0]) if call.args and itself else None
    values = ", ".join([*_counters(call, function), *([passed] if passed else [])])
    text = f"_forkpoint_same({what!r}, [{values}]{scene.members})  # forkpoint probe"
    title = f"Check before {last_word(call)} which ranks reach it: those that are missing after ten seconds are named."
    return scene.probe(title, module, statement, [line_before(statement, text, module)], [SAME])


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


def call_on_all_ranks(fork: Fork, scene: Scene) -> Fix | None:
    branch, step = fork.node, fork.step
    if fork.kind is not ForkKind.SKIPPED or not isinstance(branch, ast.If) or step is None:
        return None
    module, indent = fork.function.module, indent_of(branch, fork.function.module)
    statement = _statement_in(branch, fork)
    if indent is None or statement is None or not _is_safe(branch, statement, fork, scene.analysis):
        return None
    text, where = shortened(module.source(step.call)), scene.where(module, step.call)
    moved = "out of the branch" if _ignores_result(statement) else "before the branch, which uses the result"
    edits = _edits(branch, statement, step.call, indent, module)
    return scene.fix(f"Let every rank call `{text}` ({where}), {moved}.", module, edits)


def _is_safe(branch: ast.If, statement: ast.stmt, fork: Fork, analysis: Analysis) -> bool:
    step, function = fork.step, fork.function
    assert step is not None
    alone = len(analysis.branches.steps([*branch.body, *branch.orelse], function)) == 1
    begins = function.module.lines[branch.lineno - 1].lstrip().startswith(b"if")
    if not (alone and begins) or step.reach.api.kind is not ApiKind.COLLECTIVE or step.group:
        return False
    if _ignores_result(statement) and _writes(step.reach.through, analysis):
        return False
    by_rank = asks_for_rank(branch.test, function, analysis) and not is_paired(fork, analysis)
    return by_rank and meet(branch, function, analysis, equally_often=True)


def _statement_in(branch: ast.If, fork: Fork) -> ast.stmt | None:
    """The statement of the branch that contains the call, if nothing before or around the call matters."""
    assert fork.step is not None
    call = fork.step.call
    for outer, inner in ancestors(call, fork.function):
        if outer is branch:
            if not isinstance(inner, ast.stmt) or inner not in branch.body:
                return None
            before = branch.body[: branch.body.index(inner)]
            plain = all(_is_logging(s) for s in before)
            return inner if plain and not names_set_in(before) & names_in(call) else None
        if not isinstance(outer, _KEPT):
            return None
    return None


def _edits(branch: ast.If, statement: ast.stmt, call: ast.Call, indent: str, module: Module) -> list[TextEdit]:
    source = _as_written(call, module)
    if _ignores_result(statement) and getattr(statement, "value", None) is call:
        is_last = statement is branch.body[-1]
        own_line = indent_of(statement, module) is not None
        return _moved(branch, statement, f"{indent}{source}\n") if is_last and own_line and not branch.orelse else []
    name = free_name(f"{last_word(call)}_of_all", module)
    return [insertion(branch.lineno, 0, f"{indent}{name} = {source}\n"), replacement(call, name)]


def _moved(branch: ast.If, statement: ast.stmt, text: str) -> list[TextEdit]:
    """After the branch. If the branch contains nothing else, it is removed."""
    first = branch.lineno if len(branch.body) == 1 else statement.lineno
    return [TextEdit(first, 0, end_of(statement)[0] + 1, 0, text)]


def _as_written(call: ast.Call, module: Module) -> str:
    last, column = end_of(call)
    lines = module.lines[call.lineno - 1 : last]
    lines[-1] = lines[-1][:column]
    lines[0] = lines[0][call.col_offset :]
    return "\n".join(line.rstrip(b"\r\n").decode() for line in lines)


def _ignores_result(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and not _is_logging(statement)


def _writes(function: Function | None, analysis: Analysis, depth: int = _DEPTH) -> bool:
    """It seems to write something outside the job, judging by names."""
    if function is None:
        return False
    for call in function.calls:
        if set(last_word(call).lower().split("_")) & _WRITING or depth == 0:
            return True
        if any(_writes(f, analysis, depth - 1) for f in analysis.resolver.callees(call, function).functions):
            return True
    return False


def _is_logging(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and last_word(statement.value) in _LOGGING
    )
