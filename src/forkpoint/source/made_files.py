"""Whether a file that the program looks for may be being written by some ranks at that time."""

import ast
from collections.abc import Iterator

from forkpoint.source.apis import Origin, is_rank_word
from forkpoint.source.code import Function, spelled
from forkpoint.source.communicates import Communication
from forkpoint.source.syntax import ancestors, assignments, branches_and_loops, last_word, names_and_attributes_in
from forkpoint.source.value import Facts

_WRITES = ("save", "dump", "write", "mkdir", "makedirs", "copy", "download", "touch", "symlink", "to_", "rmtree", "remove",
           "unlink", "rename", "move", "extract")  # fmt: skip


def is_being_made(asked: ast.Call, function: Function, facts: Facts, communication: Communication) -> bool:
    """Some ranks wrote the file just before, with no communication in between, or are writing it now and may finish before
    another rank looks.
    """
    names = _same_paths(_variables(asked) - set(function.module.imports), function)
    if _is_made_below(asked, names, function, communication) or _is_made_after(asked, names, function, communication):
        return True
    written = (node.end_lineno or 0 for node in _written_by_some(names, asked.lineno, function, facts))
    last = max(written, default=None)
    if last is None:
        return False
    between = (call for call in function.calls if last < call.lineno < asked.lineno)
    return not any(communication.reach(call, function) for call in between)


def _is_made_below(asked: ast.Call, names: set[str], function: Function, communication: Communication) -> bool:
    """`if not exists(path): if rank == 0: make(path)`, before ranks meet."""
    above = next((outer for outer, _ in ancestors(asked, function) if isinstance(outer, ast.stmt)), None)
    if not isinstance(above, ast.If):
        return False
    inside = (c for c in function.calls if above.body[0].lineno <= c.lineno <= (above.end_lineno or 0))
    meets = min((c.lineno for c in inside if communication.reach(c, function)), default=above.end_lineno or 0)
    by_rank = (
        node
        for statement in above.body
        for node in ast.walk(statement)
        if isinstance(node, ast.If)
        and node.lineno <= meets
        and any(map(is_rank_word, names_and_attributes_in(node.test)))
    )
    made = (call for node in by_rank for s in node.body for call in ast.walk(s) if isinstance(call, ast.Call))
    return any(_variables(call) & names for call in made)


def _is_made_after(asked: ast.Call, names: set[str], function: Function, communication: Communication) -> bool:
    """`if exists(path): return`, followed by `if rank == 0: make(path)`: a rank that looks later finds the file."""
    for node in branches_and_loops(function):
        if not isinstance(node, ast.If) or node.lineno <= asked.lineno or asked in ast.walk(node):
            continue
        if any(map(is_rank_word, names_and_attributes_in(node.test))) and any(
            _writes(call, names) for statement in node.body for call in ast.walk(statement)
        ):
            between = (call for call in function.calls if asked.lineno < call.lineno < node.lineno)
            return not any(communication.reach(call, function) for call in between)
    return False


def _same_paths(names: set[str], function: Function) -> set[str]:
    """And other variables to which the same expression is assigned."""
    made = {target.id: ast.unparse(value) for target, value in assignments(function) if isinstance(target, ast.Name)}
    wanted = {made[name] for name in names if name in made}
    return names | {name for name, text in made.items() if text in wanted}


def _written_by_some(names: set[str], before: int, function: Function, facts: Facts) -> Iterator[ast.If]:
    for node in branches_and_loops(function):
        if not isinstance(node, ast.If) or (node.end_lineno or 0) >= before or node.test not in facts.tests:
            continue
        by_rank = any(r.origin is Origin.RANK for r in facts.tests[node.test].reasons)
        if by_rank and any(_writes(call, names) for statement in node.body for call in ast.walk(statement)):
            yield node


def _writes(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Call) and last_word(node).startswith(_WRITES) and bool(_variables(node) & names)


def _variables(node: ast.AST) -> set[str]:
    """Names, and attributes of `self`: `path`, `self.cache`. The folder of a path is not the path."""
    parts = list(_without_folders(node))
    names = {n.id for n in parts if isinstance(n, ast.Name)} - {"self", "cls"}
    attributes = {spelled(n) or "" for n in parts if isinstance(n, ast.Attribute)}
    return names | {a for a in attributes if a.startswith("self.") and a.count(".") == 1}


def _without_folders(node: ast.AST) -> Iterator[ast.AST]:
    """All below it except `path.parent` and `dirname(path)`."""
    yield node
    for child in ast.iter_child_nodes(node):
        is_folder = last_word(child) in {"parent", "dirname"} if isinstance(child, ast.Attribute | ast.Call) else False
        if not is_folder:
            yield from _without_folders(child)
