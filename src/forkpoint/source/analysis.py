"""Program -> Analysis: which conditions, loops and results can differ by rank, and everything else that rules, remedies
and the bridge ask for.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from forkpoint.source.apis import Origin, Strength, is_inbox_word, is_rank_word
from forkpoint.source.beginnings import Beginnings
from forkpoint.source.branches import Branches
from forkpoint.source.classes import MUTATES
from forkpoint.source.code import Class, Function, spelled
from forkpoint.source.communicates import Communication
from forkpoint.source.interpret import Interpreter
from forkpoint.source.program import Program
from forkpoint.source.resolve import Resolver
from forkpoint.source.syntax import argument_for, guards, last_word, names_and_attributes_in, names_in
from forkpoint.source.value import EQUAL, MADE_EQUAL, UNKNOWN, Facts, Reason, Value, join, settle

# ---------------------------------------------------------------------------------------------------------------------
# Which conditions, loops and results can differ by rank, over the whole program.

_CALLERS = 12
"""Call sites to examine. A function with more is general, and its callers say little about it."""
_HOLDERS = frozenset({"args", "opt", "opts", "cfg", "config", "hparams", "flags"})
"""Common names of the object that holds a program's options."""
_WRITERS = 6
"""Functions to examine that write an attribute."""


_DEPTH = 16
"""Nesting of functions that are interpreted because another one needs them. Deeper ones are unknown: long call chains
would overflow the stack.
"""


_NOTHING = Facts()


class Differences:
    """Functions that communicate are interpreted first, all others when needed."""

    def __init__(self, program: Program, resolver: Resolver, communication: Communication) -> None:
        self.resolver = resolver
        self.communication = communication
        self.beginnings = Beginnings(resolver)
        self._program = program
        self._facts: dict[Function, Facts] = {}
        self._before: dict[Function, Facts] = {}
        self._walking: set[Function] = set()
        self._asking: set[tuple[int, str]] = set()
        self._writers: dict[str, list[tuple[ast.Attribute, Function]]] | None = None
        # Twice: the second round uses results of the first for functions that are in progress or too deep.
        for _ in range(2):
            self._before, self._facts = self._facts, {}
            for function in program.functions():
                if function in communication.reaches:
                    self.facts(function)

    def facts(self, function: Function) -> Facts:
        known = self._facts.get(function)
        if known is not None:
            return known
        if function in self._walking or len(self._walking) == _DEPTH:
            return self._before.get(function, _NOTHING)
        self._walking.add(function)
        found = Facts()
        Interpreter(function, found, self).run()
        self._walking.discard(function)
        self._facts[function] = found
        return found

    def test(self, node: ast.expr, function: Function) -> Value:
        """The value of a condition, with what callers pass for parameters."""
        return self.settled(self.facts(function).tests.get(node, UNKNOWN), function)

    def argument(self, node: ast.expr, function: Function) -> Value:
        return self.settled(self.facts(function).arguments.get(node, UNKNOWN), function)

    def settled(self, value: Value, function: Function) -> Value:
        """Replaces parameters by what callers pass."""
        asked = value.params | value.sizes | value.sorted_params | {p for p, _ in value.unless_equal}
        if not asked:
            return value
        passed = {p: self.param(p, function) for p in asked}
        return settle(value, passed)

    def param(self, name: str, function: Function) -> Value:
        key = (id(function), name)
        if key in self._asking:
            return UNKNOWN
        self._asking.add(key)
        try:
            sites = [s for s in self.resolver.call_sites(function) if self._tells(s[1], function)][: _CALLERS + 1]
            if not sites or len(sites) > _CALLERS:
                return UNKNOWN
            return join(*(self._passed(name, call, caller, function) for call, caller in sites))
        finally:
            self._asking.discard(key)

    def _tells(self, caller: Function, function: Function) -> bool:
        """A test's arguments say nothing about what the program passes."""
        tests = self._program.tests
        return caller.module.path not in tests or function.module.path in tests

    def _passed(self, name: str, call: ast.Call, caller: Function, function: Function) -> Value:
        argument = argument_for(name, call, function)
        return EQUAL if argument is None else self.argument(argument, caller)

    def returned(self, function: Function) -> Value:
        facts = self.facts(function)
        if any(v.made for v in facts.returned):
            # `if not distributed: return x` before the collective: in a distributed job the other result counts.
            return MADE_EQUAL
        if facts.yielded:
            # A generator: the number of values is not known.
            return replace(join(*facts.yielded), equal=False, made=False, parts=())
        return join(*facts.returned) if facts.returned else EQUAL

    def attribute(self, cls: Class, name: str) -> Value | None:
        """Values assigned to `self.name` by its methods and those of its bases."""
        key = (id(cls), name)
        if key in self._asking:
            return None
        self._asking.add(key)
        try:
            owners = [cls, *(b for b in self.resolver.ancestors(cls) if isinstance(b, Class))]
            methods = dict.fromkeys(m for c in owners for _, m in self.resolver.attributes(c).get(name, ()))
            values = [self.settled(self.facts(m).written.get(name, UNKNOWN), m) for m in methods]
            if not values:
                return self._field(cls, name)
            return join(*values, *self._added(owners, name, set(methods)))
        finally:
            self._asking.discard(key)

    def _field(self, cls: Class, name: str) -> Value | None:
        """The value of a data class field: what is passed for it wherever objects are made, if one of the arguments
        names a rank. Reading all functions that create settings would cost more than it gains.
        """
        names = [n.target.id for n in cls.node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
        if name not in names or "__init__" in cls.methods:
            return None
        sites = [s for s in self.resolver.constructions(cls) if self._tells(s[1], s[1])]
        if not sites or len(sites) > _CALLERS:
            return None
        place = names.index(name)
        given = [(_given(name, place, call), caller) for call, caller in sites]
        asked = {word for argument, _ in given if argument is not None for word in names_and_attributes_in(argument)}
        if not any(map(is_rank_word, asked)):
            return None
        return join(*(EQUAL if argument is None else self.argument(argument, f) for argument, f in given))

    def _added(self, owners: list[Class], name: str, methods: set[Function]) -> list[Value]:
        """What other methods put into the container held by this attribute: the reason why its length can differ."""
        growing = dict.fromkeys(m for c in owners for m in self.resolver.growing(c).get(name, ()) if m not in methods)
        found = [self.facts(m).written.get(name, UNKNOWN) for m in [*growing][:_WRITERS]]
        added = [Value(v.content, v.extent, equal=not v.reasons) for v in found]
        later = [m for m in growing if m.short != "__init__"]
        if is_inbox_word(name) and not all(_refills(name, m) for m in later):
            added.append(Value(extent=frozenset({_waiting(name, later[0])})))
        return added

    def setting(self, holder: str, name: str) -> Value:
        """`args.saves = rank == 0`: an option that each rank sets for itself. All that set it must name the rank."""
        if holder not in _HOLDERS:
            return UNKNOWN
        writers = [(t, f) for t, f in self._foreign_writers(name) if last_word(t.value) == holder]
        if not writers or len(writers) > _WRITERS:
            return UNKNOWN
        values = [v for t, f in writers for at, v in self.facts(f).writes if at is t]
        by_rank = [v for v in values if any(r.origin is Origin.RANK for r in v.content)]
        return Value(join(*by_rank).content) if by_rank and len(by_rank) == len(values) else UNKNOWN

    def _foreign_writers(self, name: str) -> list[tuple[ast.Attribute, Function]]:
        if self._writers is None:
            self._writers = defaultdict(list)
            for function in self._program.functions():
                for target in _foreign_writes(function):
                    self._writers[target.attr].append((target, function))
        return self._writers.get(name, [])

    def foreign(self, cls: Class, name: str) -> Value:
        """Values that are assigned to this attribute from outside its class: a flag that another object sets."""
        writers = [(t, f) for t, f in self._foreign_writers(name) if self._is_of(t.value, f, cls)]
        if not writers or len(writers) > _WRITERS:
            return UNKNOWN
        values = [v for t, f in writers for at, v in self.facts(f).writes if at is t]
        return Value(frozenset().union(*(v.content for v in values)))

    def _is_of(self, expr: ast.expr, function: Function, cls: Class) -> bool:
        """The object has this class or a related one. If its class is not known, a name like the class's is enough:
        `trainer`.
        """
        found = self.resolver.class_of(expr, function)
        if isinstance(found, Class):
            return found is cls or cls in self.resolver.ancestors(found) or found in self.resolver.ancestors(cls)
        word = last_word(expr).lower().replace("_", "")
        return found is None and len(word) > 2 and word in cls.name.lower()


def _given(name: str, place: int, call: ast.Call) -> ast.expr | None:
    by_place = call.args[place] if place < len(call.args) else None
    return next((k.value for k in call.keywords if k.arg == name), by_place)


def _refills(name: str, method: Function) -> bool:
    """`if not self.queue: self.queue.extend(self.plan())`: who takes from it fills it, at the same step on all ranks."""
    container = f"self.{name}"
    added = [c for c in method.calls if isinstance(c.func, ast.Attribute) and spelled(c.func.value) == container]
    added = [c for c in added if isinstance(c.func, ast.Attribute) and c.func.attr in MUTATES and c.args]
    return bool(added) and all(
        any(
            spelled(n) == container
            for test, _ in guards(call, method)
            for n in ast.walk(test)
            if isinstance(n, ast.Attribute)
        )
        and not any(names_in(a) & set(method.params) - {"self"} for a in call.args if not isinstance(a, ast.Call))
        for call in added
    )


def _waiting(name: str, method: Function) -> Reason:
    text = "what waits in it depends on what this rank was given, and when"
    return Reason(Origin.TIMING, Strength.LIKELY, method.module.path, method.line, f"self.{name}", text)


def _foreign_writes(function: Function) -> Iterator[ast.Attribute]:
    for node in function.own.assignments:
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute) and last_word(target.value) != "self":
                    yield target


# ---------------------------------------------------------------------------------------------------------------------
# Program -> Analysis: everything that rules, remedies and the bridge ask about source.


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    program: Program
    resolver: Resolver
    communication: Communication
    differences: Differences
    branches: Branches

    def communicating(self) -> Iterator[Function]:
        """Functions in which a collective may happen, by file and line."""
        for function in self.program.functions():
            if function in self.communication.reaches:
                yield function


_MOST_FRAMES = 10_000
"""Limit on Python frames: a chain of a hundred `elif` takes four hundred frames, and that again for each function that
needs another one.
"""


def analyse(program: Program) -> Analysis:
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _MOST_FRAMES))
    resolver = Resolver(program)
    communication = Communication(program, resolver)
    differences = Differences(program, resolver, communication)
    return Analysis(program, resolver, communication, differences, Branches(communication, resolver))
