"""Which classes the elements of a container have: `for logger in self.loggers`, `self.layers[0]`."""

import ast
from collections import defaultdict
from collections.abc import Iterator

from forkpoint.source.classes import Classes, unquoted
from forkpoint.source.code import Class, Function
from forkpoint.source.program import Program
from forkpoint.source.syntax import annotation_of, called_name

_LISTS = frozenset(
    {"list", "set", "frozenset", "tuple", "deque", "sequence", "mutablesequence", "iterable", "iterator", "collection"}
)
_MAPPINGS = frozenset({"dict", "mapping", "mutablemapping", "defaultdict", "ordereddict"})
_SAME_ELEMENTS = frozenset({"list", "tuple", "set", "sorted", "reversed", "iter", "tqdm"})
_DEPTH = 4
"""Steps from a variable to whatever shows the elements of its container."""
_KEPT = 12
"""Maximum number of classes per container. One with more can hold anything."""


class Elements(Classes):
    """Answers are cached by function."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._looped: dict[Function, dict[str, list[tuple[ast.expr, int | None]]]] = {}
        self._holding: dict[tuple[Class, str], tuple[Class, ...]] = {}

    def element_classes(self, expr: ast.expr, function: Function) -> tuple[Class, ...]:
        """Classes of the program that the object may have because it is an element of a container."""
        found: list[Class] = []
        if isinstance(expr, ast.Subscript):
            found = self._in(expr.value, function, _DEPTH)
        elif isinstance(expr, ast.Name):
            for iterable, place in self._rounds_of(function).get(expr.id, ()):
                found += self._per_round(iterable, place, function, _DEPTH)
        unique = tuple(dict.fromkeys(found))
        return unique if len(unique) <= _KEPT else ()

    def _rounds_of(self, function: Function) -> dict[str, list[tuple[ast.expr, int | None]]]:
        """Where each variable of a loop or comprehension takes its values from, and its position if several are
        unpacked at once.
        """
        known = self._looped.get(function)
        if known is None:
            known = self._looped[function] = defaultdict(list)
            for node in function.own.rounds:
                if isinstance(node.target, ast.Name):
                    known[node.target.id].append((node.iter, None))
                elif isinstance(node.target, ast.Tuple):
                    for place, part in enumerate(node.target.elts):
                        if isinstance(part, ast.Name):
                            known[part.id].append((node.iter, place))
        return known

    def _per_round(self, iterable: ast.expr, place: int | None, function: Function, depth: int) -> list[Class]:
        if place is None:
            return self._in(iterable, function, depth)
        match iterable:
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]) if place == 1:
                return self._in(inner, function, depth)
            case ast.Call(func=ast.Name(id="zip"), args=args) if place < len(args):
                return self._in(args[place], function, depth)
            case ast.Call(func=ast.Attribute(value=mapping, attr="items")) if place == 1:
                return self._in(mapping, function, depth)
            case _:
                return []

    def _in(self, container: ast.expr, function: Function, depth: int) -> list[Class]:
        """Classes of the container's elements."""
        if depth == 0:
            return []
        match container:
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
                return [cls for element in elements for cls in self._one(element, function)]
            case ast.Dict(values=values):
                return [cls for value in values for cls in self._one(value, function)]
            case ast.ListComp(elt=made) | ast.SetComp(elt=made) | ast.GeneratorExp(elt=made):
                return self._one(made, function)
            case ast.BoolOp(values=values):
                return [cls for value in values for cls in self._in(value, function, depth)]
            case ast.IfExp(body=body, orelse=orelse):
                return [*self._in(body, function, depth), *self._in(orelse, function, depth)]
            case ast.Call(func=ast.Name(id=name), args=[inner, *_]) if name in _SAME_ELEMENTS:
                return self._in(inner, function, depth)
            case ast.Call(func=ast.Attribute(value=inner, attr="values" | "copy")):
                return self._in(inner, function, depth)
            case ast.Call():
                made = self.definition(container.func, function)
                returns = getattr(made.node, "returns", None) if isinstance(made, Function) else None
                return self._annotated_elements(returns, made) if isinstance(made, Function) else []
            case ast.Name():
                return self._in_variable(container.id, function, depth)
            case ast.Attribute():
                owner = self.class_of(container.value, function)
                return list(self._in_attribute(owner, container.attr)) if isinstance(owner, Class) else []
            case _:
                return []

    def _one(self, expr: ast.expr, function: Function) -> list[Class]:
        found = self.class_of(expr, function)
        return [found] if isinstance(found, Class) else []

    def _in_variable(self, name: str, function: Function, depth: int) -> list[Class]:
        found = [
            cls for value in self.assigned(function).get(name, ())[:4] for cls in self._in(value, function, depth - 1)
        ]
        found += self._annotated_elements(annotation_of(name, function), function)
        return [*found, *self._added(name, [function], of_self=False)]

    def _in_attribute(self, cls: Class, name: str) -> tuple[Class, ...]:
        known = self._holding.get((cls, name))
        if known is None:
            self._holding[cls, name] = ()
            owners = [cls, *(b for b in self.ancestors(cls) if isinstance(b, Class))]
            found: list[Class] = []
            for owner in owners:
                found += self._declared_elements(owner, name)
                for value, method in self.attributes(owner).get(name, ())[:4]:
                    found += self._in(value, method, _DEPTH - 1)
                found += self._added(name, list(owner.methods.values()), of_self=True)
            known = self._holding[cls, name] = tuple(dict.fromkeys(found))
        return known

    def _declared_elements(self, cls: Class, name: str) -> Iterator[Class]:
        """`loggers: list[Logger]` in the body of the class, or of `self` in a method."""
        nodes = [(node, cls.module.top) for node in cls.node.body if isinstance(node, ast.AnnAssign)]
        for method in cls.methods.values():
            nodes += [(node, method) for node in method.own.assignments if isinstance(node, ast.AnnAssign)]
        for node, function in nodes:
            if called_name(node.target) == name:
                yield from self._annotated_elements(node.annotation, function)

    def _added(self, name: str, functions: list[Function], *, of_self: bool) -> Iterator[Class]:
        """`loggers.append(WandbLogger())`."""
        for function in functions:
            for call in function.calls:
                match call:
                    case ast.Call(func=ast.Attribute(value=held, attr="append" | "add"), args=[made]):
                        if called_name(held) == name and isinstance(held, ast.Attribute) is of_self:
                            yield from self._one(made, function)
                    case _:
                        pass

    def _annotated_elements(self, annotation: ast.expr | None, function: Function) -> list[Class]:
        annotation = unquoted(annotation)
        match annotation:
            case ast.Subscript(value=held, slice=inside):
                kind = called_name(held).lower()
                if kind == "optional":
                    return self._annotated_elements(inside, function)
                parts = inside.elts if isinstance(inside, ast.Tuple) else [inside]
                element = parts[-1] if kind in _MAPPINGS else parts[0]
                found = self.annotated(element, function) if kind in _LISTS | _MAPPINGS else None
                return [found] if isinstance(found, Class) else []
            case ast.BinOp(left=left, right=right):
                return [*self._annotated_elements(left, function), *self._annotated_elements(right, function)]
            case _:
                return []
