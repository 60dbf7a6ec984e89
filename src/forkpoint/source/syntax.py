"""Small questions about syntax nodes: names, arguments, decisions, and what encloses a node."""

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from forkpoint.source.code import Function, children

NestedScope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
Loop = ast.For | ast.AsyncFor | ast.While
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
BranchOrLoop = ast.If | ast.IfExp | Loop
Decider = BranchOrLoop | ast.Match | ast.ExceptHandler
"""Decisions with a block of statements for each outcome, and conditional expressions."""
DecidingNode = Decider | ast.Assert | ast.BoolOp | ast.comprehension
"""Everything that decides what is evaluated next."""
_BLOCKS = ("body", "orelse", "finalbody")
_SAME_ON_ALL_RANKS = frozenset({
    "ImportError", "ModuleNotFoundError", "KeyboardInterrupt", "AttributeError", "NotImplementedError",
    "StopIteration", "StopAsyncIteration", "GeneratorExit", "TypeError", "NameError", "KeyError", "PackageNotFoundError", "CalledProcessError",
})  # fmt: skip
"""Caused by the program, the installation or the end of the data, so usually raised on all ranks."""
_PARSES = frozenset({
    "int", "float", "str", "bool", "len", "list", "tuple", "dict", "getattr", "findall", "match", "fullmatch", "search", "group",
    "groups", "split", "rsplit", "strip", "lower", "upper", "replace", "partition", "index", "literal_eval", "strptime",
    "fromisoformat", "Version", "parse",
})  # fmt: skip
"""Calls that only parse a text or a setting."""

# calls and functions


def argument_for(name: str, call: ast.Call, function: Function) -> ast.expr | None:
    """The argument that a call passes for a parameter; None if it cannot be told."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if any(isinstance(a, ast.Starred) for a in call.args) or name not in function.params:
        return None
    bound = function.owner is not None and not is_static(function)
    place = function.params.index(name) - (1 if bound else 0)
    return call.args[place] if 0 <= place < len(call.args) else None


def annotation_of(name: str, function: Function) -> ast.expr | None:
    if isinstance(function.node, ast.Module):
        return None
    a = function.node.args
    return next((p.annotation for p in (*a.posonlyargs, *a.args, *a.kwonlyargs) if p.arg == name), None)


def default_of(name: str, function: Function) -> ast.expr | None:
    if isinstance(function.node, ast.Module):
        return None
    a = function.node.args
    plain = [*a.posonlyargs, *a.args]
    given = dict(zip([p.arg for p in reversed(plain)], reversed(a.defaults), strict=False))
    given |= {p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}
    return given.get(name)


_HOLDS_DATA = frozenset({"Tensor", "ndarray", "dict", "Dict", "list", "List", "Any", "Mapping", "Sequence", "Iterable", "tuple",
                         "Tuple", "Batch", "BatchEncoding"})  # fmt: skip


def is_setting(name: str, function: Function) -> bool:
    """A parameter that is a flag, a number or a text by its annotation or its default: what the job was started with."""
    annotation, default = annotation_of(name, function), default_of(name, function)
    mentioned = names_and_attributes_in(annotation) if annotation is not None else set[str]()
    if mentioned & {"bool", "int", "str", "float"} and not mentioned & _HOLDS_DATA:
        return True
    return isinstance(default, ast.Constant) and isinstance(default.value, bool | int | str)


def is_container_annotation(name: str, function: Function) -> bool:
    """`xs: list[int]`, `d: Dict[str, int]`."""
    annotation = annotation_of(name, function)
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return base is not None and called_name(base).lower() in {"list", "dict", "set", "deque", "defaultdict", "sequence"}


def last_word(expr: ast.expr) -> str:
    """`model` of `self.model`, `trainer.model` and `model`; of a call, the function's."""
    return called_name(expr.func if isinstance(expr, ast.Call) else expr)


def called_name(expr: ast.expr) -> str:
    if isinstance(expr, ast.Attribute):
        return expr.attr
    return expr.id if isinstance(expr, ast.Name) else ""


def is_super(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Call) and isinstance(expr.func, ast.Name) and expr.func.id == "super"


def is_static(function: Function) -> bool:
    return any(called_name(d) == "staticmethod" for d in function.decorators())


def is_property(function: Function) -> bool:
    return any(called_name(d) in {"property", "cached_property"} for d in function.decorators())


def is_abstract(function: Function) -> bool:
    """Only a docstring, `pass`, `...` or `raise NotImplementedError`."""
    for statement in function.body:
        plain = isinstance(statement, ast.Pass) or (
            isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        )
        if not plain and not (isinstance(statement, ast.Raise) and "NotImplemented" in ast.dump(statement)):
            return False
    return True


def is_declaration(function: Function) -> bool:
    """Abstract by its decorator, because it only raises NotImplementedError, or because it is `...`: it stands for others."""
    if any(called_name(d) == "abstractmethod" for d in function.decorators()):
        return True
    last = function.body[-1]
    is_dots = isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...
    return is_abstract(function) and (is_dots or any(isinstance(statement, ast.Raise) for statement in function.body))


def assignments(function: Function) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in function.own.assignments:
        match node:
            case ast.Assign():
                for target in node.targets:
                    yield from _pairs(target, node.value)
            case ast.AnnAssign() if node.value is not None:
                yield node.target, node.value
            case ast.NamedExpr():
                yield node.target, node.value
            case ast.withitem() if node.optional_vars is not None:
                yield node.optional_vars, node.context_expr
            case _:
                pass


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        yield from zip(target.elts, value.elts, strict=True)
    else:
        yield target, value


def receiver_fits(receiver: ast.expr, words: tuple[str, ...]) -> bool:
    """One of the words is part of the receiver's name; true if no words are given."""
    parts = last_word(receiver).lower().strip("_").split("_")
    return not words or any(part.rstrip("s") == word for part in parts for word in words)


def is_mask(index: ast.expr) -> bool:
    return (
        isinstance(index, ast.Compare)
        or (isinstance(index, ast.Call) and last_word(index) == "bool")
        or (isinstance(index, ast.Name) and index.id.endswith("mask"))
        or (isinstance(index, ast.UnaryOp) and isinstance(index.op, ast.Invert))
    )


def is_difference_of_keys(expr: ast.BinOp) -> bool:
    """`old.keys() - new.keys()` is a set."""
    is_of_sets = isinstance(expr.op, ast.Sub | ast.BitAnd | ast.BitOr | ast.BitXor)
    return is_of_sets and isinstance(expr.left, ast.Call) and called_name(expr.left.func) == "keys"


def is_minus_one(expr: ast.expr) -> bool:
    return isinstance(expr, ast.UnaryOp) and isinstance(expr.operand, ast.Constant) and expr.operand.value == 1


def all_arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(k.value for k in call.keywords)]


# names and texts


def names_in(node: ast.AST) -> set[str]:
    """Variables that occur in it."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def names_and_attributes_in(node: ast.AST) -> set[str]:
    return {last_word(n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)}


def names_set_in(nodes: Sequence[ast.AST]) -> set[str]:
    """Variables that these nodes assign or delete."""
    return {
        n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
    }


def shortened(text: str, most: int = 80) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


# nodes below and above


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below it in source order, without those inside nested functions, classes and lambdas."""
    pending = children(node)[::-1]
    while pending:
        child = pending.pop()
        if not isinstance(child, NestedScope):
            yield child
            pending.extend(children(child)[::-1])


@lru_cache(maxsize=10_000)
def _compound(function: Function) -> tuple[ast.AST, ...]:
    """Branches, loops and `try` of a function. Cached: each rule asks for some of them."""
    return tuple(node for node in own_nodes(function.node) if isinstance(node, BranchOrLoop | Comprehension | ast.Try))


class Rounds(NamedTuple):
    """Something that is done several times: a loop, or a comprehension."""

    node: Loop | Comprehension
    head: ast.expr
    """How often: a condition if it is a `while`, else what is iterated over."""
    body: Sequence[ast.AST]


def rounds(function: Function) -> Iterator[Rounds]:
    for node in _compound(function):
        if isinstance(node, Loop):
            yield Rounds(node, test_of(node), node.body)
        elif isinstance(node, Comprehension):
            made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            yield Rounds(node, node.generators[0].iter, [*made, *node.generators[1:]])


_NAMES = frozenset({"name", "key", "k", "path", "file", "filename", "fname", "field", "metric", "entry", "folder", "dir", "tag",
                    "label", "id", "split", "n", "f", "word"})  # fmt: skip


def is_over_names(loop: Loop | Comprehension) -> bool:
    """Its elements are strings, judging by the loop variable's name: those can be sorted."""
    if isinstance(loop, ast.While | Comprehension) or not isinstance(loop.target, ast.Name):
        return False
    return loop.target.id.lower().rpartition("_")[2] in _NAMES


def tries(function: Function) -> Iterator[ast.Try]:
    return (node for node in _compound(function) if isinstance(node, ast.Try))


def branches_and_loops(function: Function) -> Iterator[BranchOrLoop]:
    """Outer ones first."""
    return (node for node in _compound(function) if isinstance(node, BranchOrLoop))


def enclosing(line: int, function: Function) -> Sequence[BranchOrLoop]:
    """Branches and loops whose body or `else` contains the line, innermost first."""
    found = [
        node
        for node in branches_and_loops(function)
        if not isinstance(node, ast.IfExp) and (spans(node.body, line) or spans(node.orelse, line))
    ]
    return found[::-1]


def spans(block: Sequence[ast.stmt], line: int) -> bool:
    return bool(block) and block[0].lineno <= line <= (block[-1].end_lineno or 0)


@lru_cache(maxsize=64)
def _parents(root: ast.AST) -> dict[ast.AST, ast.AST]:
    """Cached: callers ask dozens of times about the function they are looking at."""
    above: dict[ast.AST, ast.AST] = {}
    pending = [root]
    while pending:
        node = pending.pop()
        below = children(node)
        above.update(dict.fromkeys(below, node))
        pending += below
    return above


def ancestors(node: ast.AST, function: Function) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Pairs (enclosing node, its child that contains `node`), innermost first."""
    above = _parents(function.node)
    if isinstance(node, ast.Call) and node not in above:
        # A call that the source hides, such as reading a property, is where the property is.
        node = node.func
    while node in above:
        yield above[node], node
        node = above[node]


def is_repeated(node: ast.AST, function: Function) -> bool:
    """It is in a loop or comprehension of the function."""
    return any(
        isinstance(outer, ast.For | ast.AsyncFor | ast.While | Comprehension) for outer, _ in ancestors(node, function)
    )


def statement_of(node: ast.AST, function: Function) -> ast.stmt | None:
    """The statement that contains an expression; a statement is its own."""
    if isinstance(node, ast.stmt):
        return node
    return next((outer for outer, _ in ancestors(node, function) if isinstance(outer, ast.stmt)), None)


def block_of(statement: ast.stmt, function: Function) -> list[ast.stmt]:
    """The list of statements that contains it."""
    around = next((outer for outer, _ in ancestors(statement, function)), function.node)
    blocks = (getattr(around, name, []) for name in _BLOCKS)
    return next((b for b in blocks if isinstance(b, list) and statement in b), [])


# decisions


def guards(call: ast.Call, function: Function) -> Iterator[tuple[ast.expr, bool]]:
    """Conditions of the branches around a call, and whether they hold where it is made."""
    for outer, inner in ancestors(call, function):
        if isinstance(outer, ast.If) and inner is not outer.test:
            yield outer.test, inner in outer.body
        if isinstance(outer, ast.IfExp) and inner is not outer.test:
            yield outer.test, inner is outer.body
        if isinstance(outer, ast.BoolOp):
            before = outer.values[: next(place for place, value in enumerate(outer.values) if value is inner)]
            yield from ((test, isinstance(outer.op, ast.And)) for test in before)


def test_of(node: BranchOrLoop) -> ast.expr:
    """The condition, or what a `for` iterates over."""
    return node.iter if isinstance(node, ast.For | ast.AsyncFor) else node.test


def tests_of(node: DecidingNode) -> tuple[ast.expr, ...]:
    """The expressions that decide. None for a handler, where the exception decides."""
    match node:
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            return (node.test,)
        case ast.For() | ast.AsyncFor():
            return (node.iter,)
        case ast.Match():
            return (node.subject,)
        case ast.BoolOp():
            return tuple(node.values[:-1])
        case ast.comprehension():
            return (node.iter, *node.ifs)
        case _:
            return ()


def assumed(test: ast.expr, *, holds: bool) -> set[tuple[str, bool]]:
    """What is known if a condition holds, or does not: `(text, whether it is true)` of its parts."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            return assumed(test.operand, holds=not holds)
        case ast.BoolOp() if isinstance(test.op, ast.And) is holds:
            return {known for value in test.values for known in assumed(value, holds=holds)}
        case ast.Compare(ops=[ast.IsNot() | ast.NotEq() | ast.NotIn() as op]):
            opposite = {ast.IsNot: ast.Is, ast.NotEq: ast.Eq, ast.NotIn: ast.In}[type(op)]
            return {(ast.unparse(ast.Compare(test.left, [opposite()], test.comparators)), not holds)}
        case _:
            return {(ast.unparse(test), holds)}


def is_flag(test: ast.expr) -> bool:
    """A name, an attribute, a call or an `==`: all ranks for which it holds have the same value."""
    is_equality = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq)
    return isinstance(test, ast.Name | ast.Attribute | ast.Call) or is_equality


def is_raised_on_all_ranks(handler: ast.ExceptHandler, tried: Sequence[ast.stmt] = ()) -> bool:
    """What it catches is usually raised on all ranks, not on one. A body that only parses a text raises for the same
    texts everywhere.
    """
    calls = [n for statement in tried for n in ast.walk(statement) if isinstance(n, ast.Call)]
    if calls and all(last_word(call) in _PARSES for call in calls):
        return True
    if handler.type is None:
        return False
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = {last_word(t) for t in types}
    # Together with errors of the program, these count too; alone they can be caused by this rank's data.
    others = names - {"ValueError", "IndexError"}
    return bool(others) and others <= _SAME_ON_ALL_RANKS
