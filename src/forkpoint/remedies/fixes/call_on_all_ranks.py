"""Move a collective out of a branch that only some ranks take.

Every rank makes the call before the branch, and the branch uses the result. Only if the call does not depend on anything
else in the branch. A call whose result is not used is moved as a whole, unless it seems to write something, which must
not happen on all ranks.
"""

import ast

from forkpoint.model.verdict import Fix
from forkpoint.remedies.edit import TextEdit, end_of, free_name, indent_of, insertion, replacement
from forkpoint.remedies.scene import Scene
from forkpoint.remedies.together import asks_for_rank, come_together, is_paired
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind
from forkpoint.source.bridge.fork import Fork, ForkKind
from forkpoint.source.code import Function, Module
from forkpoint.source.syntax import ancestors, last_word, names_in, names_set_in, shortened

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


def offer(fork: Fork, scene: Scene) -> Fix | None:
    branch, step = fork.node, fork.step
    if fork.kind is not ForkKind.SKIPPED or not isinstance(branch, ast.If) or step is None:
        return None
    module, indent = fork.function.module, indent_of(branch, fork.function.module)
    statement = _statement_in(branch, fork)
    if indent is None or statement is None or not _is_safe(branch, statement, fork, scene.analysis):
        return None
    edits = _edits(branch, statement, step.call, indent, module)
    patch = scene.patch(module, edits) if edits else None
    text, where = shortened(module.source(step.call)), scene.where(module, step.call)
    moved = "out of the branch" if _ignores_result(statement) else "before the branch, which uses the result"
    return Fix(f"Let every rank call `{text}` ({where}), {moved}.", patch) if patch else None


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
    return by_rank and come_together(branch, function, analysis)


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
