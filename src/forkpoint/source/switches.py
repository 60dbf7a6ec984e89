"""Parameters that switch communication on: `def save(x, gather=False): if gather: all_gather(x)`.

A call that passes the other value, or leaves the parameter at a default that is the other value, does not communicate.
"""

import ast
from collections.abc import Callable, Iterable

from forkpoint.source.code import Function
from forkpoint.source.flow import exit_of
from forkpoint.source.resolve import Resolver
from forkpoint.source.syntax import ancestors, argument_for, assumed, block_of, default_of, guards

Needs = frozenset[tuple[str, bool]]
"""Conditions on parameters, as text, and whether they must hold: `("gather", True)`, `("group is None", False)`."""
_NOTHING: Needs = frozenset()
_DEPTH = 6
"""How many functions may pass a switch on to the next."""
StepsOf = Callable[[Function], Iterable[tuple[ast.Call, Function | None]]]
"""The calls of a function that communicate, and the function of the program that each of them runs."""


class Switches:
    def __init__(self, resolver: Resolver, steps: StepsOf) -> None:
        self._resolver = resolver
        self._steps = steps
        self._needs: dict[Function, Needs] = {}
        self._silent: set[Function] = set()
        """Functions in which everything that could communicate is switched off."""

    def is_off(self, call: ast.Call, callee: Function) -> bool:
        """What the call passes keeps the function from communicating."""
        needs = self._of(callee, _DEPTH)
        return callee in self._silent or any(_outcome(text, call, callee) is (not holds) for text, holds in needs)

    def _of(self, function: Function, depth: int) -> Needs:
        """What must hold for the parameters at each call in it that communicates."""
        known = self._needs.get(function)
        if known is None:
            self._needs[function] = _NOTHING
            per_call = [self._at(call, callee, function, depth) for call, callee in self._steps(function)]
            if not per_call:
                self._silent.add(function)
            known = self._needs[function] = frozenset.intersection(*per_call) if per_call else _NOTHING
        return known

    def _at(self, call: ast.Call, callee: Function | None, function: Function, depth: int) -> Needs:
        plain = self._constant_parameters(function)
        if not plain:
            return _NOTHING
        conditions = [*guards(call, function), *left_before(call, function)]
        found = {known for test, holds in conditions for known in self._conditions(test, function, holds=holds)}
        if callee is not None and depth:
            found |= self._passed_on(call, callee, depth - 1)
        return frozenset((text, holds) for text, holds in found if text.removesuffix(" is None") in plain)

    def _passed_on(self, call: ast.Call, callee: Function, depth: int) -> Needs:
        """`store(x, gather=gather)`: what the next function needs, this one needs from its caller."""
        found: set[tuple[str, bool]] = set()
        for text, holds in self._of(callee, depth):
            name = text.removesuffix(" is None")
            argument = argument_for(name, call, callee)
            if isinstance(argument, ast.Name):
                found.add((argument.id + text.removeprefix(name), holds))
        return frozenset(found)

    def _conditions(self, test: ast.expr, function: Function, *, holds: bool) -> set[tuple[str, bool]]:
        """With `sync = gather and ready` before it, `if sync:` asks for `gather`."""
        found = assumed(test, holds=holds)
        for text, outcome in tuple(found):
            values = self._resolver.assigned(function).get(text, ())
            if len(values) == 1 and text not in function.params:
                found |= assumed(values[0], holds=outcome)
        return found

    def _constant_parameters(self, function: Function) -> set[str]:
        """Parameters that the function does not assign."""
        return set(function.params) - set(self._resolver.assigned(function))


def left_before(call: ast.Call, function: Function) -> list[tuple[ast.expr, bool]]:
    """Conditions under which the function would have returned before the call: `if not gather: return`."""
    found: list[tuple[ast.expr, bool]] = []
    for _, inner in ancestors(call, function):
        if isinstance(inner, ast.stmt):
            block = block_of(inner, function)
            before = (s for s in block[: block.index(inner)] if isinstance(s, ast.If) and not s.orelse)
            found += [(s.test, False) for s in before if exit_of(s.body) == "return"]
    return found


def _outcome(text: str, call: ast.Call, callee: Function) -> bool | None:
    """Whether a condition on a parameter holds for this call; None if the source does not show it. The content of
    `**given` is not known, and is assumed to leave the parameter unchanged.
    """
    name = text.removesuffix(" is None")
    given = argument_for(name, call, callee) or default_of(name, callee)
    if not isinstance(given, ast.Constant):
        return None
    return given.value is None if text != name else bool(given.value)
