"""Taps on filters: list comprehensions with `if`, loops that begin with `if ...: continue`, generators that yield what
passes a test, and `x[mask]`.

Filters are not calls that could be replaced, so the user's modules are compiled with a call around each; line numbers stay. A
script that is started as a new process (`--cold`) is compiled before we run: there, only modules that it imports have taps.
"""

import ast
import builtins
import functools
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, Final

from forkpoint.rehearse.decisions import tests_of_list, tests_of_loop, yields_by_data
from forkpoint.rehearse.inside.places import CodePlaces
from forkpoint.rehearse.listening import Listener

_KEPT: Final = "__forkpoint_kept__"
_EACH: Final = "__forkpoint_each__"
_ITEM: Final = "__forkpoint_item__"
_YIELDING: Final = "__forkpoint_yielding__"

_frame = sys._getframe  # noqa: SLF001 documented, and a tap needs its caller


def open_filters(listener: Listener, places: CodePlaces, is_mask: Callable[[Any], bool]) -> None:
    """Installs the taps for modules that are loaded from now on. `is_mask`: of tensors."""

    def kept(values: list[Any]) -> list[Any]:
        site = places.at(_frame(1))
        return values if site is None else listener.kept(site, values)

    def each(values: Any) -> Iterator[Any]:
        site = places.at(_frame(1))
        return iter(values) if site is None else listener.each(site, iter(values))

    def yielding(function: Any) -> Any:
        @functools.wraps(function)
        def made(*args: Any, **named: Any) -> Any:
            items = function(*args, **named)
            site = places.at(_frame(1))
            return items if site is None else listener.generated(site, function.__name__, items)

        return made

    def item(values: Any, index: Any) -> Any:
        site = places.at(_frame(1)) if is_mask(index) else None
        return values[index if site is None else listener.selecting(site, index)]

    setattr(builtins, _ITEM, item)
    setattr(builtins, _YIELDING, yielding)
    setattr(builtins, _KEPT, kept)
    setattr(builtins, _EACH, each)
    original = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, fullname: str) -> Any:
        if not places.is_own(loader.path):
            return original(loader, fullname)
        tree = ast.parse(Path(loader.path).read_bytes(), loader.path)
        return compile(ast.fix_missing_locations(_Around().visit(tree)), loader.path, "exec", dont_inherit=True)

    kind: Any = SourceFileLoader
    kind.get_code = get_code


class _Around(ast.NodeTransformer):
    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        self.generic_visit(node)
        return _called(_KEPT, node) if tests_of_list(node) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """`x[mask]`: whatever is read by an index that may be a mask."""
        self.generic_visit(node)
        never = isinstance(node.slice, ast.Slice | ast.Tuple | ast.Constant | ast.JoinedStr)
        return node if never or not isinstance(node.ctx, ast.Load) else _called(_ITEM, node.value, node.slice)

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        if tests_of_loop(node):
            node.iter = _called(_EACH, node.iter)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """Skips special methods, and functions with a decorator, which may not be plain generators."""
        self.generic_visit(node)
        if not node.decorator_list and not node.name.startswith("__") and yields_by_data(node):
            node.decorator_list = [ast.copy_location(ast.Name(_YIELDING, ast.Load()), node)]
        return node


def _called(name: str, *values: ast.expr) -> ast.Call:
    function = ast.copy_location(ast.Name(name, ast.Load()), values[0])
    return ast.copy_location(ast.Call(function, [*values], []), values[0])
