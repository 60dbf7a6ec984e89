"""Which class an object has, as far as the program shows it, and what a name refers to."""

import ast
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator

from forkpoint.source.apis import known_apis
from forkpoint.source.code import Class, Function
from forkpoint.source.program import Program
from forkpoint.source.syntax import (
    annotation_of,
    argument_for,
    assignments,
    called_name,
    is_property,
)

_DEPTH = 4
"""Steps from a name to the call that made its object. Longer chains are rare, and each step can be a guess."""
MUTATES = frozenset({"append", "extend", "add", "update", "insert", "pop", "remove", "setdefault", "discard", "put"})
_WRAPPED = ("model", "net", "engine", "transformer")
"""Ends of names for what a library wraps, among other things that it returns."""


_LONGEST_ANNOTATION = 500
"""Characters of a type in quotes: what is longer may be nested more deeply than can be followed."""


class Classes(ABC):
    """Answers are cached: each function and class is examined once."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._assigned: dict[Function, dict[str, list[ast.expr]]] = {}
        self._attributes: dict[Class, dict[str, list[tuple[ast.expr, Function]]]] = {}
        self._growing: dict[Class, dict[str, list[Function]]] = {}
        self._bases: dict[Class, tuple[Class | str, ...]] = {}
        self._typing: set[tuple[int, int]] = set()
        self._subclasses: dict[Class, list[Class]] | None = None

    @abstractmethod
    def call_sites(self, function: Function) -> Iterator[tuple[ast.Call, Function]]:
        """Calls that run this function, and no other."""

    # names

    def dotted(self, expr: ast.expr, function: Function) -> str | None:
        """`torch.distributed.all_reduce`, through the module's imports."""
        if isinstance(expr, ast.Attribute):
            base = self.dotted(expr.value, function)
            return f"{base}.{expr.attr}" if base else None
        if not isinstance(expr, ast.Name) or expr.id in function.params:
            return None
        module = function.module
        nested = nested_function(expr.id, function)
        if nested is not None:
            return f"{module.name}.{nested.name}"
        if expr.id in module.imports:
            return module.imports[expr.id]
        if expr.id in module.functions or expr.id in module.classes:
            return f"{module.name}.{expr.id}"
        starred = next((s for s in module.stars if self.program.lookup(f"{s}.{expr.id}")), None)
        return f"{starred}.{expr.id}" if starred else None

    def definition(self, expr: ast.expr, function: Function) -> Function | Class | None:
        """What a name or dotted expression refers to, within the program itself."""
        if isinstance(expr, ast.Name):
            nested = nested_function(expr.id, function)
            if nested is not None:
                return nested
            if expr.id not in function.params and expr.id not in function.module.imports:
                own = function.module.functions.get(expr.id) or function.module.classes.get(expr.id)
                if own is not None:
                    return own
        dotted = self.dotted(expr, function)
        return self.program.lookup(dotted) if dotted else None

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
            case (
                ast.IfExp(body=ast.Attribute(attr="module"), orelse=other)
                | ast.IfExp(body=other, orelse=ast.Attribute(attr="module"))
            ):
                # `model.module if distributed else model`: in a job with several ranks it is what the wrapper holds.
                found = self.class_of(other, function, depth)
                return None if found in known_apis().wrappers else found
            case ast.IfExp():
                return self.class_of(expr.body, function, depth) or self.class_of(expr.orelse, function, depth)
            case ast.BoolOp():
                found = (self.class_of(value, function, depth) for value in expr.values)
                return next(filter(None, found), None)
            case _:
                return None

    def _class_of_name(self, name: str, function: Function, depth: int) -> Class | str | None:
        found = [self.class_of(value, function, depth - 1) for value in self.assigned(function).get(name, ())[:6]]
        wrapped = [f for f in found if isinstance(f, str) and f in known_apis().wrappers]
        for cls in (*wrapped, *found):
            # `model = build()`, then `model = DDP(model)`: its final value.
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
        found = self.annotated(annotation, function) if annotation is not None else None
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
        getter = cls.methods.get(name)
        return (
            self._returned(getter, depth) if getter is not None and is_property(getter) else self._declared(cls, name)
        )

    def _declared(self, cls: Class, name: str) -> Class | str | None:
        """`checkpointer: Checkpointer` in the body of the class."""
        for node in cls.node.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
                return self.annotated(node.annotation, cls.module.top)
        return None

    def _class_of_call(self, call: ast.Call, function: Function, depth: int) -> Class | str | None:
        definition = self.definition(call.func, function)
        if isinstance(definition, Class):
            return definition
        if isinstance(definition, Function):
            return self._returned(definition, depth)
        if isinstance(call.func, ast.Name) and call.func.id == "cls":
            return function.owner
        dotted = self.dotted(call.func, function)
        if dotted is None and isinstance(call.func, ast.Attribute):
            owner = self.class_of(call.func.value, function, depth - 1)
            method = self.method(owner, call.func.attr) if isinstance(owner, Class) else None
            if method is not None:
                return self._returned(method, depth)
        if dotted is None and called_name(call.func) == "prepare" and _is_accelerator(call.func):
            return "accelerate.Accelerator.prepare"
        is_class = dotted is not None and dotted.rpartition(".")[2][:1].isupper()
        return dotted if is_class or dotted in known_apis().wrappers else None

    def _returned(self, function: Function, depth: int) -> Class | str | None:
        returns = getattr(function.node, "returns", None)
        declared = self.annotated(returns, function) if returns is not None else None
        if declared is not None:
            return declared
        for node in function.own.returns:
            if node.value is not None:
                found = self.class_of(node.value, function, depth - 1)
                if found is not None:
                    return found
        return None

    def annotated(self, annotation: ast.expr, function: Function) -> Class | str | None:
        """The class that an annotation names."""
        plain = unquoted(annotation)
        if plain is None:
            return None
        annotation = plain
        if isinstance(annotation, ast.Subscript) and called_name(annotation.value) == "Optional":
            return self.annotated(annotation.slice, function)
        if isinstance(annotation, ast.BinOp):
            return self.annotated(annotation.left, function) or self.annotated(annotation.right, function)
        if called_name(annotation) == "Self":
            return function.owner
        # `Pipeline[Batch, Action]`: the class, for some parameters.
        generic = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        definition = self.definition(generic, function)
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
            for call in function.calls:
                # It changes the class of its argument in place.
                if called_name(call.func) == "fully_shard" and call.args and isinstance(call.args[0], ast.Name):
                    known[call.args[0].id].append(call)
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


def unquoted(annotation: ast.expr | None) -> ast.expr | None:
    """`"list[Logger]"` as an expression; None if it is none."""
    if not (isinstance(annotation, ast.Constant) and isinstance(annotation.value, str)):
        return annotation
    if len(annotation.value) > _LONGEST_ANNOTATION:
        return None
    try:
        return ast.parse(annotation.value, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # a NUL is a ValueError
        return None


def nested_function(name: str, function: Function) -> Function | None:
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
