"""Which function a call runs, and which class an object has, as far as the program shows it."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from forkpoint.source.apis import known_apis
from forkpoint.source.code import Class, Function
from forkpoint.source.program import Program
from forkpoint.source.syntax import (
    annotation_of,
    argument_for,
    assignments,
    called_name,
    is_abstract,
    is_property,
    is_super,
)

_DEPTH = 4
"""Steps from a name to the call that made its object. Longer chains are rare, and each step can be a guess."""
_NESTED = 12
"""Calls that are resolved because another one asks, one inside the other."""
RUNS_ITS_ARGUMENT = frozenset({"to_thread", "run_in_executor", "submit", "partial", "wraps", "apply_async"})
_COMMON = frozenset(dir(str) + dir(list) + dir(dict) + dir(set) + dir(bytes) + dir(int)) | {
    "run", "start", "stop", "close", "open", "read", "write", "save", "load", "step", "forward", "reset", "build",
    "create", "apply", "call", "process", "execute", "init", "setup", "to", "cpu", "cuda", "train", "eval", "backward",
    "log", "info", "warning", "error", "debug", "send", "recv", "wait", "put", "submit", "result", "state_dict",
    "load_state_dict", "parameters", "size", "view", "item", "sum", "mean", "numpy", "flush", "join", "next",
    "generate", "sample", "fit", "predict", "transform", "compute", "prepare", "finish", "main", "register", "parse",
}  # fmt: skip
"""Method names that many classes have: without the receiver's class they resolve to nothing."""


@dataclass(frozen=True, slots=True)
class Callees:
    functions: tuple[Function, ...]
    exact: bool
    """False: one of them, and which is not known."""


_NONE = Callees((), exact=True)


class Resolver:
    """Answers are cached: each function and class is examined once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._callees: dict[ast.Call, Callees] = {}
        self._nested = 0
        self._assigned: dict[Function, dict[str, list[ast.expr]]] = {}
        self._attributes: dict[Class, dict[str, list[tuple[ast.expr, Function]]]] = {}
        self._bases: dict[Class, tuple[Class | str, ...]] = {}
        self._typing: set[tuple[int, int]] = set()
        self._sites: dict[str, list[tuple[ast.Call, Function]]] | None = None
        self._subclasses: dict[Class, list[Class]] | None = None

    # names

    def dotted(self, expr: ast.expr, function: Function) -> str | None:
        """`torch.distributed.all_reduce`, through the module's imports."""
        if isinstance(expr, ast.Attribute):
            base = self.dotted(expr.value, function)
            return f"{base}.{expr.attr}" if base else None
        if not isinstance(expr, ast.Name) or expr.id in function.params:
            return None
        module = function.module
        nested = _nested(expr.id, function)
        if nested is not None:
            return f"{module.name}.{nested.name}"
        if expr.id in module.imports:
            return module.imports[expr.id]
        if expr.id in module.functions or expr.id in module.classes:
            return f"{module.name}.{expr.id}"
        starred = next((s for s in module.stars if self.program.lookup(f"{s}.{expr.id}")), None)
        return f"{starred}.{expr.id}" if starred else None

    def definition(self, expr: ast.expr, function: Function) -> Function | Class | None:
        """What a name or dotted expression stands for, in the program itself."""
        if isinstance(expr, ast.Name):
            nested = _nested(expr.id, function)
            if nested is not None:
                return nested
            if expr.id not in function.params and expr.id not in function.module.imports:
                own = function.module.functions.get(expr.id) or function.module.classes.get(expr.id)
                if own is not None:
                    return own
        dotted = self.dotted(expr, function)
        return self.program.lookup(dotted) if dotted else None

    # calls

    def callees(self, call: ast.Call, function: Function) -> Callees:
        known = self._callees.get(call)
        if known is None:
            if self._nested == _NESTED:
                return _NONE
            self._callees[call] = _NONE
            self._nested += 1
            known = self._callees[call] = self._resolve(call, function)
            self._nested -= 1
        return known

    def call_sites(self, function: Function) -> Iterator[tuple[ast.Call, Function]]:
        """Calls that run this function, and no other."""
        if self._sites is None:
            self._sites = defaultdict(list)
            for caller in self.program.functions():
                for call in caller.calls:
                    self._sites[called_name(call.func)].append((call, caller))
        name = (
            function.owner.name.rpartition(".")[2]
            if function.short == "__init__" and function.owner
            else function.short
        )
        for call, caller in self._sites.get(name, ()):
            callees = self.callees(call, caller)
            if callees.exact and function in callees.functions:
                yield call, caller

    def _resolve(self, call: ast.Call, function: Function) -> Callees:
        func = call.func
        definition = self.definition(func, function)
        if isinstance(definition, Function):
            return Callees((definition,), exact=True)
        if isinstance(definition, Class):
            return _one(self.method(definition, "__init__"))
        if called_name(func) in RUNS_ITS_ARGUMENT:
            for argument in call.args:
                passed = self.definition(argument, function)
                if isinstance(passed, Function):
                    return Callees((passed,), exact=True)
        if isinstance(func, ast.Attribute):
            return self._method_call(func, function)
        cls = self.class_of(func, function)
        if isinstance(cls, Class):
            return _one(self.method(cls, "__call__") or self.method(cls, "forward"))
        return _NONE

    def _method_call(self, func: ast.Attribute, function: Function) -> Callees:
        if is_super(func.value) and function.owner is not None:
            inherited = (self.method(b, func.attr) for b in self.bases(function.owner) if isinstance(b, Class))
            return _one(next(filter(None, inherited), None))
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
        if func.attr in _COMMON or func.attr.startswith("__"):
            return _NONE
        return Callees(tuple(self.program.methods.get(func.attr, ())[:8]), exact=False)

    def _overridden(self, found: Function, cls: Class, name: str) -> Callees:
        """A method that only stands for those of subclasses is one of those."""
        if not is_abstract(found):
            return Callees((found,), exact=True)
        below = [m for sub in self._below(cls) if (m := sub.methods.get(name)) and not is_abstract(m)]
        return Callees(tuple(below), exact=len(below) == 1)

    # classes

    def class_of(self, expr: ast.expr, function: Function, depth: int = _DEPTH) -> Class | str | None:
        """A class of the program, the dotted name of another one, or None."""
        key = (id(expr), id(function))
        if depth == 0 or key in self._typing:
            return None
        self._typing.add(key)
        try:
            return self._class_of(expr, function, depth)
        finally:
            self._typing.discard(key)

    def _class_of(self, expr: ast.expr, function: Function, depth: int) -> Class | str | None:
        match expr:
            case ast.Name(id="self" | "cls") if function.owner is not None:
                return function.owner
            case ast.Name(id="self") if function.outer is not None and function.outer.owner is not None:
                return function.outer.owner
            case ast.Name():
                return self._class_of_name(expr.id, function, depth)
            case ast.Attribute():
                owner = self.class_of(expr.value, function, depth - 1)
                return self._class_of_attribute(owner, expr.attr, depth) if isinstance(owner, Class) else None
            case ast.Call():
                return self._class_of_call(expr, function, depth)
            case ast.Await() | ast.NamedExpr():
                return self.class_of(expr.value, function, depth)
            case ast.IfExp():
                return self.class_of(expr.body, function, depth) or self.class_of(expr.orelse, function, depth)
            case _:
                return None

    def _class_of_name(self, name: str, function: Function, depth: int) -> Class | str | None:
        found = [self.class_of(value, function, depth - 1) for value in self.assigned(function).get(name, ())[:6]]
        wrapped = [f for f in found if isinstance(f, str) and f in known_apis().wrappers]
        for cls in (*wrapped, *found):
            # `model = build()`, then `model = DDP(model)`: what it is in the end.
            if cls is not None:
                return cls
        if name in function.params:
            return self._class_of_param(name, function, depth)
        if function.outer is not None:
            return self._class_of_name(name, function.outer, depth - 1) if depth > 1 else None
        top = function.module.top
        return self._class_of_name(name, top, depth - 1) if function is not top and depth > 1 else None

    def _class_of_param(self, name: str, function: Function, depth: int) -> Class | str | None:
        annotation = annotation_of(name, function)
        found = self._annotated(annotation, function) if annotation is not None else None
        if found is not None:
            return found
        classes = {
            self.class_of(argument, caller, depth - 1)
            for call, caller in self.call_sites(function)
            if (argument := argument_for(name, call, function)) is not None
        }
        return classes.pop() if len(classes) == 1 else None

    def _class_of_attribute(self, cls: Class, name: str, depth: int) -> Class | str | None:
        for value, method in self.attributes(cls).get(name, ())[:4]:
            found = self.class_of(value, method, depth - 1)
            if found is not None:
                return found
        for base in self.bases(cls):
            if isinstance(base, Class) and depth > 1:
                found = self._class_of_attribute(base, name, depth - 1)
                if found is not None:
                    return found
        return None

    def _class_of_call(self, call: ast.Call, function: Function, depth: int) -> Class | str | None:
        definition = self.definition(call.func, function)
        if isinstance(definition, Class):
            return definition
        if isinstance(definition, Function):
            returns = getattr(definition.node, "returns", None)
            found = self._annotated(returns, definition) if returns is not None else None
            return found or self._returned(definition, depth)
        dotted = self.dotted(call.func, function)
        return dotted if dotted and dotted.rpartition(".")[2][:1].isupper() else None

    def _returned(self, function: Function, depth: int) -> Class | str | None:
        for node in function.own.returns:
            if node.value is not None:
                found = self.class_of(node.value, function, depth - 1)
                if found is not None:
                    return found
        return None

    def _annotated(self, annotation: ast.expr, function: Function) -> Class | str | None:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return None
        if isinstance(annotation, ast.Subscript) and called_name(annotation.value) == "Optional":
            return self._annotated(annotation.slice, function)
        if isinstance(annotation, ast.BinOp):
            return self._annotated(annotation.left, function)
        definition = self.definition(annotation, function)
        if isinstance(definition, Class):
            return definition
        return self.dotted(annotation, function)

    # members

    def method(self, cls: Class, name: str, depth: int = 8) -> Function | None:
        found = cls.methods.get(name)
        if found is not None or depth == 0:
            return found
        inherited = (self.method(b, name, depth - 1) for b in self.bases(cls) if isinstance(b, Class) and b is not cls)
        return next(filter(None, inherited), None)

    def bases(self, cls: Class) -> tuple[Class | str, ...]:
        known = self._bases.get(cls)
        if known is None:
            self._bases[cls] = ()
            top = cls.module.top
            found = [self.definition(b, top) or self.dotted(b, top) for b in cls.node.bases]
            known = self._bases[cls] = tuple(b for b in found if isinstance(b, Class | str))
        return known

    def ancestors(self, cls: Class, depth: int = 8) -> Iterator[Class | str]:
        for base in self.bases(cls):
            yield base
            if isinstance(base, Class) and base is not cls and depth:
                yield from self.ancestors(base, depth - 1)

    def attributes(self, cls: Class) -> dict[str, list[tuple[ast.expr, Function]]]:
        """What is assigned to `self.x` in its methods, and to `x` in its body."""
        known = self._attributes.get(cls)
        if known is None:
            known = self._attributes[cls] = defaultdict(list)
            for method in cls.methods.values():
                for target, value in assignments(method):
                    if (
                        isinstance(target, ast.Attribute)
                        and isinstance(target.value, ast.Name)
                        and target.value.id == "self"
                    ):
                        known[target.attr].append((value, method))
        return known

    def assigned(self, function: Function) -> dict[str, list[ast.expr]]:
        known = self._assigned.get(function)
        if known is None:
            known = self._assigned[function] = defaultdict(list)
            for target, value in assignments(function):
                if isinstance(target, ast.Name):
                    known[target.id].append(value)
        return known

    def _below(self, cls: Class) -> list[Class]:
        if self._subclasses is None:
            self._subclasses = defaultdict(list)
            for module in self.program.modules.values():
                for sub in module.classes.values():
                    for ancestor in self.ancestors(sub):
                        if isinstance(ancestor, Class):
                            self._subclasses[ancestor].append(sub)
        return self._subclasses.get(cls, [])


def _nested(name: str, function: Function) -> Function | None:
    around: Function | None = function
    while around is not None and around.name != "<module>":
        found = function.module.functions.get(f"{around.name}.{name}")
        if found is not None and found.owner is None:
            return found
        around = around.outer
    return None


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
