"""Finds where a program filters data: list comprehensions with `if`, loops that begin with `if ...: continue`, generators that
yield what passes a test.
"""

import ast
import zlib
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import PurePath
from typing import Any, Final, cast

from forkpoint.source.apis import is_rank_word
from forkpoint.source.syntax import last_word

_LOOKED_AT: Final = 64
"""Elements that are compared between ranks."""
_DEEP: Final = 4
_LONG: Final = 200


def tests_of_list(node: ast.ListComp) -> list[ast.expr]:
    return [test for generator in node.generators for test in generator.ifs if not generator.is_async]


def tests_of_loop(loop: ast.For) -> list[ast.stmt]:
    """The statements at the start of the body that decide whether to `continue`. Empty: there are none."""
    for number, statement in enumerate(loop.body):
        if isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Continue) and not statement.orelse:
            return loop.body[: number + 1]
        if not isinstance(statement, ast.Assign | ast.AnnAssign):
            break
    return []


def yields_by_data(function: ast.FunctionDef) -> bool:
    """A test inside a loop decides how often it yields, and that test does not ask for the rank."""
    loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
    left = [tests for loop in loops if isinstance(loop, ast.For) and _yields(loop) and (tests := tests_of_loop(loop))]
    branches = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.If)]
    taken = [[branch.test] for branch in branches if any(map(_yields, branch.body))]
    return any(not asks_for_rank(tests) for tests in (*left, *taken))


def _yields(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node))


def find_filters(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, list[ast.AST]]]:
    """For each filter, the line under which it is reported and its conditions."""
    for node in nodes:
        if isinstance(node, ast.ListComp) and (tests := tests_of_list(node)):
            yield node.lineno, list(tests)
        elif isinstance(node, ast.For) and (rounds := tests_of_loop(node)):
            yield node.iter.lineno, list(rounds)


def asks_for_rank(tests: Iterable[ast.AST]) -> bool:
    """The condition mentions a rank: it selects a rank's share of the data and does not drop bad samples."""
    parts = [part for test in tests for part in ast.walk(test)]
    return any(isinstance(part, ast.Name | ast.Attribute) and is_rank_word(last_word(part)) for part in parts)


def fingerprint(values: Iterable[Any]) -> float | None:
    """Equal for equal data on any rank; None if it is not plain data. Integers alone do not count: they may be ranks, layers or
    experts, none of which can be missing.
    """
    looked_at = list(islice(values, _LOOKED_AT))
    if not all(map(_is_plain, looked_at)) or all(isinstance(value, int) for value in looked_at):
        return None
    return float(zlib.crc32("\n".join(repr(value)[:_LONG] for value in looked_at).encode(errors="replace")))


def _is_plain(value: Any, depth: int = 0) -> bool:
    if isinstance(value, dict):
        value = [*cast("dict[Any, Any]", value).keys(), *cast("dict[Any, Any]", value).values()]
    if isinstance(value, (list, tuple)):
        return depth < _DEEP and all(_is_plain(part, depth + 1) for part in cast("list[Any]", value)[:_LOOKED_AT])
    return value is None or isinstance(value, str | bytes | int | float | PurePath)
