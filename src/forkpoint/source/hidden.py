"""Calls that source does not write as calls: reading a property, and entering an object that was made before.

For each of them there is a call without arguments at the same place, so that all other code sees only calls.
"""

import ast
from collections.abc import Iterator

from forkpoint.source.code import Class, Function
from forkpoint.source.program import Program
from forkpoint.source.resolve import CONTEXT_METHODS, Callees, Resolver
from forkpoint.source.syntax import is_property, own_nodes

_SHORT = 7
"""Attributes of an object of unknown class count as a property of the program only if their name is longer than this many letters."""


class HiddenCalls:
    def __init__(self, program: Program, resolver: Resolver) -> None:
        self._program = program
        self._resolver = resolver
        self.at: dict[ast.AST, ast.Call] = {}
        """The implied call for each expression."""

    def entered(self, function: Function) -> Iterator[ast.Call]:
        """`with self.lock:`, if the class of the object is known."""
        for item in function.own.assignments:
            if isinstance(item, ast.withitem) and not isinstance(item.context_expr, ast.Call):
                cls = self._resolver.class_of(item.context_expr, function)
                methods = (
                    [self._resolver.method(cls, name) for name in CONTEXT_METHODS] if isinstance(cls, Class) else []
                )
                found = tuple(filter(None, methods))
                if found:
                    yield self._call(item.context_expr, Callees(found, exact=True))

    def read(self, getter: Function) -> Iterator[tuple[ast.Call, Function]]:
        """Where the program reads a property."""
        word = f".{getter.short}"
        for module in self._program.modules.values():
            if word not in module.text:
                continue
            for function in module.functions.values():
                for node in own_nodes(function.node):
                    if isinstance(node, ast.Attribute) and node.attr == getter.short and node not in self.at:
                        callees = self._getters(node, getter, function)
                        if callees is not None:
                            yield self._call(node, callees), function

    def _getters(self, node: ast.Attribute, getter: Function, function: Function) -> Callees | None:
        if not isinstance(node.ctx, ast.Load):
            return None
        cls = self._resolver.class_of(node.value, function)
        if isinstance(cls, Class):
            found = self._resolver.method(cls, node.attr)
            return Callees((getter,), exact=True) if found is getter else None
        if cls is not None or self._resolver.dotted(node, function) is not None or len(node.attr) <= _SHORT:
            return None
        named = self._program.methods[node.attr]
        return Callees(tuple(named), exact=False) if all(is_property(m) for m in named) else None

    def _call(self, node: ast.expr, callees: Callees) -> ast.Call:
        call = ast.copy_location(ast.Call(node, [], []), node)
        self.at[node] = call
        self._resolver.note(call, callees)
        return call
