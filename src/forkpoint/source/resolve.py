"""Which function a call runs, as far as the program shows it."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from forkpoint.source.code import Class, Function
from forkpoint.source.elements import Elements
from forkpoint.source.flow import ends_process, exit_of
from forkpoint.source.program import Program
from forkpoint.source.syntax import (
    all_arguments,
    argument_for,
    called_name,
    is_abstract,
    is_declaration,
    is_property,
    is_super,
)

_NESTED = 12
"""Limit on nested resolutions, in which one call needs another."""
STARTS_THREADS = frozenset({"Thread", "Timer", "start_new_thread"})
RUNS_ITS_ARGUMENT = frozenset({"to_thread", "run_in_executor", "submit", "apply_async"}) | STARTS_THREADS
_BUILTIN = frozenset(dir(str) + dir(list) + dir(dict) + dir(set) + dir(bytes) + dir(int))
_COMMON = frozenset({
    "run", "start", "stop", "close", "open", "read", "write", "save", "load", "step", "forward", "reset", "build",
    "create", "apply", "call", "process", "execute", "init", "setup", "to", "cpu", "cuda", "train", "eval", "backward",
    "log", "info", "warning", "error", "debug", "send", "recv", "wait", "put", "submit", "result", "state_dict",
    "load_state_dict", "parameters", "size", "view", "item", "sum", "mean", "numpy", "flush", "join", "next",
    "generate", "sample", "fit", "predict", "evaluate", "transform", "compute", "prepare", "finish", "main", "register", "parse",
})  # fmt: skip
"""Method names that many classes have. If the receiver's class is not known, only classes named like the receiver
count: `self.checkpointer.save()`.
"""
_PLAIN = frozenset({
    "run", "start", "stop", "close", "open", "read", "write", "to", "cpu", "cuda", "log", "info", "warning", "error",
    "debug", "send", "recv", "wait", "put", "submit", "result", "size", "view", "item", "sum", "mean", "numpy", "flush",
    "join", "next", "register", "parse", "call", "main",
})  # fmt: skip
"""Of these, names that say nothing even with the receiver's: queues, streams, tensors and threads have them."""
_CANDIDATES = 8
"""Functions that a call of unknown target may run. A name with more is general."""


CONTEXT_METHODS = ("__enter__", "__exit__", "__aenter__", "__aexit__")


@dataclass(frozen=True, slots=True)
class Callees:
    functions: tuple[Function, ...]
    exact: bool
    """False if it is one of them, and it is not known which."""
    implement: Function | None = None
    """The abstract method in the class that the object is known to have."""
    instead: tuple[Function, ...] = ()
    """What it may run instead, if the object's class inherits from the one that it is known to have."""
    of_family: bool = False
    """If not exact: they are methods of classes of one family."""

    @property
    def possible(self) -> tuple[Function, ...]:
        """All functions that it may run, as far as classes are known."""
        return (*self.functions, *self.instead) if self.exact or self.of_family else ()


_NONE = Callees((), exact=True)


class Resolver(Elements):
    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._callees: dict[ast.Call, Callees] = {}
        self._nested = 0
        self._contexts: dict[Function, set[ast.expr]] = {}
        self._raising: dict[Function, bool] = {}
        self._sites: dict[str, list[tuple[ast.Call, Function]]] | None = None

    def callees(self, call: ast.Call, function: Function) -> Callees:
        known = self._callees.get(call)
        if known is None:
            if self._nested == _NESTED:
                return _NONE
            self._callees[call] = _NONE
            self._nested += 1
            known = self._callees[call] = self._entered(call, function, self._resolve(call, function))
            self._nested -= 1
        return known

    def call_sites(self, function: Function) -> Iterator[tuple[ast.Call, Function]]:
        """Calls that run this function, and no other, or one of a family of methods."""
        name = (
            function.owner.name.rpartition(".")[2]
            if function.short == "__init__" and function.owner
            else function.short
        )
        for call, caller in self.calls_of(name):
            callees = self.callees(call, caller)
            if (callees.exact or callees.of_family) and function in callees.functions:
                yield call, caller

    def constructions(self, cls: Class) -> Iterator[tuple[ast.Call, Function]]:
        """Calls that create an object of this class."""
        for call, caller in self.calls_of(cls.name.rpartition(".")[2]):
            if self.definition(call.func, caller) is cls:
                yield call, caller

    def calls_of(self, name: str) -> list[tuple[ast.Call, Function]]:
        """Calls of anything with this name."""
        if self._sites is None:
            self._sites = defaultdict(list)
            for caller in self.program.functions():
                for call in caller.calls:
                    self._sites[called_name(call.func)].append((call, caller))
        return self._sites.get(name, [])

    def note(self, call: ast.Call, callees: Callees) -> None:
        """Records what a call runs that the source does not write as a call."""
        self._callees[call] = callees

    def _resolve(self, call: ast.Call, function: Function) -> Callees:
        func = call.func
        definition = self.definition(func, function)
        if isinstance(definition, Function):
            return self._with_decorators(definition)
        if isinstance(definition, Class):
            return _one(self.method(definition, "__init__"))
        if called_name(func) in RUNS_ITS_ARGUMENT:
            for argument in all_arguments(call):
                passed = self.held(argument, function)
                if passed is not None:
                    return Callees((passed,), exact=True)
        bound = self._bound(func, function)
        if bound:
            return self._with_decorators(bound[0]) if len(bound) == 1 else Callees(bound, exact=False)
        if isinstance(func, ast.Attribute):
            return self._method_call(func, function)
        cls = self.class_of(func, function)
        if isinstance(cls, Class):
            return _one(self.method(cls, "__call__") or self.method(cls, "forward"))
        return _NONE

    def _with_decorators(self, function: Function) -> Callees:
        """A call of a decorated function also runs the wrappers of the program's own decorators."""
        around: list[Function] = []
        for decorator in function.decorators():
            named = decorator.func if isinstance(decorator, ast.Call) else decorator
            made = self.definition(named, function.module.top)
            if isinstance(made, Function):
                inside = f"{made.name}."
                around += [f for name, f in made.module.functions.items() if name.startswith(inside)]
        return Callees((function, *around), exact=True)

    def _entered(self, call: ast.Call, function: Function, callees: Callees) -> Callees:
        """`with Timer():` also enters and leaves the object, and so does `with make_timer():`."""
        if call not in self._contexts_of(function):
            return callees
        cls = self.class_of(call, function)
        if not isinstance(cls, Class) or not callees.exact:
            return callees
        entered = (m for name in CONTEXT_METHODS if (m := self.method(cls, name)))
        return Callees((*callees.functions, *entered), exact=True)

    def _contexts_of(self, function: Function) -> set[ast.expr]:
        known = self._contexts.get(function)
        if known is None:
            items = (node for node in function.own.assignments if isinstance(node, ast.withitem))
            known = self._contexts[function] = {item.context_expr for item in items}
        return known

    def _bound(self, func: ast.expr, function: Function) -> tuple[Function, ...]:
        """The function that a name holds: `f = partial(save, path)`, `f = save if full else save_part`, a parameter for
        which all callers pass the same, or an entry of a table of functions.
        """
        if isinstance(func, ast.Subscript):
            return self._tabled(func.value, function)
        if not isinstance(func, ast.Name):
            return ()
        values = self.assigned(function).get(func.id, ())
        if values:
            chosen = [v for value in values for v in _chosen(value)]
            held = dict.fromkeys(self.held(v, function) for v in chosen)
            return tuple(f for f in held if f is not None) if None not in held else ()
        passed = {
            self.held(argument, caller)
            for call, caller in (self.call_sites(function) if func.id in function.params else ())
            if (argument := argument_for(func.id, call, function)) is not None
        }
        only = passed.pop() if len(passed) == 1 else None
        return (only,) if only is not None else ()

    def _tabled(self, table: ast.expr, function: Function) -> tuple[Function, ...]:
        """`SAVERS[kind](x)`, with `SAVERS = {"full": save_full, "lora": save_lora}` in the module."""
        if not isinstance(table, ast.Name):
            return ()
        made = self.assigned(function.module.top).get(table.id, ())
        if len(made) != 1 or not isinstance(made[0], ast.Dict):
            return ()
        held = dict.fromkeys(self.held(value, function.module.top) for value in made[0].values)
        return tuple(f for f in held if f is not None) if None not in held else ()

    def held(self, expr: ast.expr, function: Function) -> Function | None:
        """The function that an argument is: `save`, `self._save`, `partial(save, path)`."""
        held = self._partial(expr, function) or self.definition(expr, function)
        if held is None and isinstance(expr, ast.Attribute):
            cls = self.class_of(expr.value, function)
            held = self.method(cls, expr.attr) if isinstance(cls, Class) else None
        return held if isinstance(held, Function) else None

    def _partial(self, value: ast.expr, function: Function) -> Function | None:
        if not isinstance(value, ast.Call) or called_name(value.func) != "partial" or not value.args:
            return None
        return self.held(value.args[0], function)

    def never_returns(self, call: ast.Call, function: Function) -> bool:
        """It ends the process, or runs a function that only raises."""
        if ends_process(call):
            return True
        callees = self.callees(call, function)
        return bool(callees.functions) and callees.exact and self._only_raises(callees.functions[0])

    def _only_raises(self, function: Function) -> bool:
        known = self._raising.get(function)
        if known is None:
            self._raising[function] = False
            annotated = called_name(getattr(function.node, "returns", None) or ast.Constant(None))
            raises = exit_of(function.body, lambda call: self.never_returns(call, function)) == "raise"
            plain = not function.own.returns and not is_abstract(function)
            known = self._raising[function] = annotated in {"NoReturn", "Never"} or (raises and plain)
        return known

    def exit_of(self, block: Sequence[ast.stmt], function: Function) -> str | None:
        """How control leaves the block, if it never runs past its end."""
        return exit_of(block, lambda call: self.never_returns(call, function))

    def _method_call(self, func: ast.Attribute, function: Function) -> Callees:
        if is_super(func.value) and function.owner is not None:
            inherited = (self.method(b, func.attr) for b in self.bases(function.owner) if isinstance(b, Class))
            found = next(filter(None, inherited), None)
            return self._with_decorators(found) if found else _NONE
        cls = self.class_of(func.value, function)
        if isinstance(cls, Class):
            found = self.method(cls, func.attr)
            if found is not None:
                # What a property returns is called, and that is not known.
                return _NONE if is_property(found) else self._overridden(found, cls, func.attr)
            # An object in an attribute that is called: `self.model(x)`.
            held = self.class_of(func, function)
            if isinstance(held, Class):
                return _one(self.method(held, "__call__") or self.method(held, "forward"))
            return _NONE
        if isinstance(cls, str) or self.dotted(func.value, function) is not None:
            return _NONE
        if func.attr in _BUILTIN or func.attr.startswith("__"):
            return _NONE
        held = self.element_classes(func.value, function)
        if held:
            return self._of_any(held, func.attr)
        found = [m for m in self.program.methods.get(func.attr, ()) if not is_declaration(m)]
        if func.attr in _PLAIN:
            return _NONE
        if func.attr in _COMMON:
            word = called_name(func.value).lower().replace("_", "")
            found = [m for m in found if len(word) > 4 and m.owner and m.owner.name.lower().endswith(word)]
        return Callees(tuple(found[:_CANDIDATES]), exact=False, of_family=self._is_family(found))

    def _overridden(self, found: Function, cls: Class, name: str) -> Callees:
        """A method that only declares what subclasses implement is replaced by theirs."""
        below = [m for sub in self._below(cls) if (m := sub.methods.get(name)) and not is_abstract(m)]
        if is_abstract(found):
            return Callees(tuple(below), exact=len(below) == 1, implement=found, of_family=True)
        known = self._with_decorators(found)
        return replace(known, instead=tuple(below)) if below else known

    def _of_any(self, classes: tuple[Class, ...], name: str) -> Callees:
        """The method of an object that has one of these classes, or a subclass of them."""
        own = [(m, cls) for cls in classes if (m := self.method(cls, name)) is not None and not is_property(m)]
        if len(own) == 1:
            return self._overridden(own[0][0], own[0][1], name)
        found = [f for method, cls in own for f in self._overridden(method, cls, name).possible]
        return Callees(tuple(dict.fromkeys(found)), exact=False, of_family=True)

    def _is_family(self, methods: list[Function]) -> bool:
        """Their classes inherit from a common class of the program."""
        above = [{m.owner, *self.ancestors(m.owner)} for m in methods if m.owner is not None]
        is_shared = (
            any(isinstance(cls, Class) and all(cls in others for others in above) for cls in above[0])
            if above
            else False
        )
        return len(methods) <= _CANDIDATES and is_shared


def _chosen(value: ast.expr) -> tuple[ast.expr, ...]:
    return (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)


def _one(function: Function | None) -> Callees:
    return Callees((function,), exact=True) if function else _NONE


def callees_below(lines: range, function: Function, resolver: Resolver, depth: int) -> Iterator[tuple[Function, int]]:
    """Functions that the calls on these lines run, directly (level 1) or through others, up to `depth` levels."""
    seen = {function}
    pending = [(function, call, 1) for call in function.calls if call.lineno in lines]
    while pending:
        caller, call, level = pending.pop(0)
        for callee in resolver.callees(call, caller).functions:
            if callee not in seen:
                seen.add(callee)
                yield callee, level
                if level < depth:
                    pending.extend((callee, c, level + 1) for c in callee.calls)
