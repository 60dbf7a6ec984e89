"""Which function a call runs, and which class an object has, as far as the program shows it."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from forkpoint.source.apis import known_apis
from forkpoint.source.code import Class, Function
from forkpoint.source.flow import ends_process, exit_of
from forkpoint.source.program import Program
from forkpoint.source.syntax import (
    annotation_of,
    argument_for,
    assignments,
    called_name,
    is_abstract,
    is_declaration,
    is_property,
    is_super,
)

_DEPTH = 4
"""Steps from a name to the call that made its object. Longer chains are rare, and each step can be a guess."""
_NESTED = 12
"""Calls that are resolved because another one asks, one inside the other."""
RUNS_ITS_ARGUMENT = frozenset({"to_thread", "run_in_executor", "submit", "apply_async"})
MUTATES = frozenset({"append", "extend", "add", "update", "insert", "pop", "remove", "setdefault", "discard", "put"})
_BUILTIN = frozenset(dir(str) + dir(list) + dir(dict) + dir(set) + dir(bytes) + dir(int))
_COMMON = frozenset({
    "run", "start", "stop", "close", "open", "read", "write", "save", "load", "step", "forward", "reset", "build",
    "create", "apply", "call", "process", "execute", "init", "setup", "to", "cpu", "cuda", "train", "eval", "backward",
    "log", "info", "warning", "error", "debug", "send", "recv", "wait", "put", "submit", "result", "state_dict",
    "load_state_dict", "parameters", "size", "view", "item", "sum", "mean", "numpy", "flush", "join", "next",
    "generate", "sample", "fit", "predict", "transform", "compute", "prepare", "finish", "main", "register", "parse",
})  # fmt: skip
"""Method names that many classes have. Without the receiver's class, only those of classes that are called like the
receiver count: `self.checkpointer.save()`.
"""
_PLAIN = frozenset({
    "run", "start", "stop", "close", "open", "read", "write", "to", "cpu", "cuda", "log", "info", "warning", "error",
    "debug", "send", "recv", "wait", "put", "submit", "result", "size", "view", "item", "sum", "mean", "numpy", "flush",
    "join", "next", "register", "parse", "call", "main",
})  # fmt: skip
"""Of these, names that say nothing even with the receiver's: queues, streams, tensors and threads have them."""
_CANDIDATES = 8
"""Functions that a call of unknown target may run. A name with more is general."""
_WRAPPED = ("model", "net", "engine", "transformer")
"""Ends of names for what a library wraps, among other things that it returns."""


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
        self._growing: dict[Class, dict[str, list[Function]]] = {}
        self._bases: dict[Class, tuple[Class | str, ...]] = {}
        self._typing: set[tuple[int, int]] = set()
        self._contexts: dict[Function, set[ast.expr]] = {}
        self._raising: dict[Function, bool] = {}
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
            return self._with_decorators(definition)
        if isinstance(definition, Class):
            return self._constructed(definition, call, function)
        if called_name(func) in RUNS_ITS_ARGUMENT:
            for argument in call.args:
                passed = self.definition(argument, function)
                if isinstance(passed, Function):
                    return Callees((passed,), exact=True)
        bound = self._bound(func, function)
        if bound is not None:
            return self._with_decorators(bound)
        if isinstance(func, ast.Attribute):
            return self._method_call(func, function)
        cls = self.class_of(func, function)
        if isinstance(cls, Class):
            return _one(self.method(cls, "__call__") or self.method(cls, "forward"))
        return _NONE

    def _with_decorators(self, function: Function) -> Callees:
        """A call of a decorated function also runs what the program's own decorators put around it."""
        around: list[Function] = []
        for decorator in function.decorators():
            named = decorator.func if isinstance(decorator, ast.Call) else decorator
            made = self.definition(named, function.module.top)
            if isinstance(made, Function):
                inside = f"{made.name}."
                around += [f for name, f in made.module.functions.items() if name.startswith(inside)]
        return Callees((function, *around), exact=True)

    def _constructed(self, cls: Class, call: ast.Call, function: Function) -> Callees:
        """`with Timer():` also enters and leaves the object."""
        names = ["__init__"]
        if call in self._contexts_of(function):
            names += ["__enter__", "__exit__", "__aenter__", "__aexit__"]
        return Callees(tuple(m for name in names if (m := self.method(cls, name))), exact=True)

    def _contexts_of(self, function: Function) -> set[ast.expr]:
        known = self._contexts.get(function)
        if known is None:
            items = (node for node in function.own.assignments if isinstance(node, ast.withitem))
            known = self._contexts[function] = {item.context_expr for item in items}
        return known

    def _bound(self, func: ast.expr, function: Function) -> Function | None:
        """What a name stands for that holds a function: `f = partial(save, path)`, or a parameter for which all callers
        pass the same.
        """
        if not isinstance(func, ast.Name):
            return None
        made = {self._partial(value, function) for value in self.assigned(function).get(func.id, ())}
        if not made and func.id in function.params:
            passed = (
                self._partial(argument, caller) or self.definition(argument, caller)
                for call, caller in self.call_sites(function)
                if (argument := argument_for(func.id, call, function)) is not None
            )
            made = {p if isinstance(p, Function) else None for p in passed}
        return made.pop() if len(made) == 1 else None

    def _partial(self, value: ast.expr, function: Function) -> Function | None:
        if not isinstance(value, ast.Call) or called_name(value.func) != "partial" or not value.args:
            return None
        held = self.definition(value.args[0], function)
        return held if isinstance(held, Function) else None

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
        found = [m for m in self.program.methods.get(func.attr, ()) if not is_declaration(m)]
        if func.attr in _PLAIN:
            return _NONE
        if func.attr in _COMMON:
            word = called_name(func.value).lower().replace("_", "")
            found = [m for m in found if len(word) > 4 and m.owner and m.owner.name.lower().endswith(word)]
        return Callees(tuple(found[:_CANDIDATES]), exact=False)

    def _overridden(self, found: Function, cls: Class, name: str) -> Callees:
        """A method that only stands for those of subclasses is one of those."""
        if not is_abstract(found):
            return self._with_decorators(found)
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
        return self._declared(cls, name)

    def _declared(self, cls: Class, name: str) -> Class | str | None:
        """`checkpointer: Checkpointer` in the body of the class."""
        for node in cls.node.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return self._annotated(node.annotation, cls.module.top)
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
        if dotted is None and called_name(call.func) == "prepare" and _is_accelerator(call.func):
            return "accelerate.Accelerator.prepare"
        is_class = dotted is not None and dotted.rpartition(".")[2][:1].isupper()
        return dotted if is_class or dotted in known_apis().wrappers else None

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

    def growing(self, cls: Class) -> dict[str, list[Function]]:
        """Methods that add to or remove from the container in `self.x`."""
        known = self._growing.get(cls)
        if known is None:
            known = self._growing[cls] = defaultdict(list)
            for method in cls.methods.values():
                for name in dict.fromkeys(_grown_in(method)):
                    known[name].append(method)
        return known

    def assigned(self, function: Function) -> dict[str, list[ast.expr]]:
        known = self._assigned.get(function)
        if known is None:
            known = self._assigned[function] = defaultdict(list)
            for target, value in assignments(function):
                if isinstance(target, ast.Name):
                    known[target.id].append(value)
                elif isinstance(target, ast.Tuple) and isinstance(value, ast.Call):
                    for name in _wrapped_in(target, value):
                        known[name].append(value)
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


def _wrapped_in(target: ast.Tuple, call: ast.Call) -> Iterator[str]:
    """`model` of `model, optimizer = accelerator.prepare(model, optimizer)`."""
    if called_name(call.func) in {"prepare", "initialize"}:
        names = (part.id for part in target.elts if isinstance(part, ast.Name))
        yield from (name for name in names if name.lower().endswith(_WRAPPED))


def _is_accelerator(func: ast.expr) -> bool:
    return isinstance(func, ast.Attribute) and called_name(func.value).endswith("accelerator")


def _grown_in(method: Function) -> Iterator[str]:
    for call in method.calls:
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in MUTATES and _is_of_self(func.value):
            yield called_name(func.value)
    for node in method.own.assignments:
        for target in getattr(node, "targets", ()):
            if isinstance(target, ast.Subscript) and _is_of_self(target.value):
                yield called_name(target.value)


def _is_of_self(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Attribute) and isinstance(expr.value, ast.Name) and expr.value.id == "self"


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
