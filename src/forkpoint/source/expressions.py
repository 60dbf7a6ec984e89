"""Expression -> Value: whether it can differ by rank."""

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from forkpoint.source.apis import (
    Api,
    Origin,
    Strength,
    ValueSource,
    is_agreement_word,
    is_data_word,
    is_loader_word,
    is_local_attribute,
    is_low_rank_word,
    is_parameter_word,
    is_rank_word,
    is_setting_word,
    is_world_word,
    known_apis,
)
from forkpoint.source.code import Function, spelled
from forkpoint.source.communicates import Communication
from forkpoint.source.resolve import MUTATES, RUNS_ITS_ARGUMENT, Resolver
from forkpoint.source.syntax import (
    all_arguments,
    is_mask,
    is_minus_one,
    is_setting,
    last_word,
    names_and_attributes_in,
    names_in,
    receiver_fits,
    shortened,
)
from forkpoint.source.value import (
    EQUAL,
    MADE_EQUAL,
    NO_REASONS,
    UNKNOWN,
    Reason,
    Reasons,
    Value,
    combined,
    decided_by,
    differing,
    in_sorted_order,
    join,
    strongest,
)

_PURE = frozenset({
    "int", "float", "bool", "str", "abs", "min", "max", "sum", "any", "all", "round", "list", "tuple", "enumerate",
    "zip", "reversed", "dict", "repr", "divmod", "pow", "iter", "next", "map", "filter", "tqdm", "trange", "deepcopy",
    "copy", "hash",
})  # fmt: skip
_MEASURES = frozenset({"numel", "size", "shape", "ndim", "nelement", "dim", "keys", "values", "items"})
_COLLECTS = frozenset({"list", "tuple", "reversed", "dict", "deepcopy", "copy", "filter", "map", "zip", "enumerate"})
"""Of `_PURE`, those whose result holds elements."""
_MESHES = frozenset({"mesh", "device_mesh"})
"""A table of ranks, the same on all of them."""
_CONTAINERS = frozenset({"defaultdict", "deque", "OrderedDict", "Counter"})
_PLACEMENT = frozenset({"device", "dtype", "generator", "pin_memory", "requires_grad", "non_blocking"})
"""Arguments that say where a tensor is, not what is in it."""
_FRESH = frozenset({"zeros", "ones", "empty", "zeros_like", "ones_like", "empty_like", "eye"})
"""Tensors with the same content everywhere; only sizes come from the arguments."""
_TYPE_LIKE = frozenset({"dtype", "device", "requires_grad", "element_size", "itemsize", "stride", "layout", "is_contiguous",
                        "is_cuda", "is_floating_point", "is_complex", "is_sparse"})  # fmt: skip
"""Of a tensor: what kind it is, not what is in it."""
_GROUPS = ("group", "pg", "mesh", "comm", "communicator")
_NUMERIC = ("torch.", "numpy.", "math.", "itertools.", "functools.", "operator.")


class Scope(Protocol):
    """What the evaluation of an expression needs from the function around it."""

    function: Function
    env: dict[str, Value]
    context: Value
    """The decisions under which this code runs."""

    def attribute(self, expr: ast.Attribute) -> Value | None: ...
    def name(self, name: str) -> Value: ...
    def returned(self, call: ast.Call, arguments: dict[ast.expr, Value]) -> Value | None: ...
    def test(self, node: ast.expr, value: Value) -> None: ...
    def passed(self, arguments: dict[ast.expr, Value]) -> None: ...
    def grown(self, container: ast.Attribute, added: Value) -> None: ...
    def yielded(self, value: Value) -> None: ...


class Expressions:
    def __init__(self, scope: Scope, resolver: Resolver, communication: Communication) -> None:
        self._scope = scope
        self._resolver = resolver
        self._communication = communication
        self._apis = known_apis()

    def value(self, node: ast.expr | None) -> Value:
        match node:
            case None | ast.Constant():
                return EQUAL
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._call(node)
            case ast.Compare():
                return self._compare(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.IfExp():
                test = self.truth(node.test)
                self._scope.test(node.test, test)
                return decided_by(join(self.value(node.body), self.value(node.orelse)), test)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.NamedExpr():
                value = self.value(node.value)
                self._scope.env[node.target.id] = value
                return value
            case ast.Lambda():
                return UNKNOWN
            case ast.Yield() | ast.YieldFrom():
                self._scope.yielded(self.value(node.value))
                return UNKNOWN
            case ast.Tuple():
                parts = tuple(self.value(e) for e in node.elts)
                return replace(self._displayed(node.elts), parts=parts)
            case ast.Set():
                inner = self._displayed(node.elts)
                unordered = strongest(inner.extent | {self._unordered(node)})
                return replace(inner, extent=unordered, is_container=True)
            case ast.List():
                return replace(self._displayed(node.elts), is_container=True)
            case ast.Dict():
                # A key of None is `**other`.
                spread = [ast.Starred(v) for k, v in zip(node.keys, node.values, strict=True) if k is None]
                plain = [v for k, v in zip(node.keys, node.values, strict=True) if k is not None]
                return replace(self._displayed([*spread, *plain, *filter(None, node.keys)]), is_container=True)
            case ast.BinOp():
                return combined(self.value(node.left), self.value(node.right))
            case _:
                return join(*(self.value(c) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr)))

    def _displayed(self, elements: Sequence[ast.expr]) -> Value:
        """`[a, b]` has two elements on each rank, whatever they are; `[*a]` as many as `a`."""
        values = [(e, self.value(e.value if isinstance(e, ast.Starred) else e)) for e in elements]
        inner = join(*(v for _, v in values))
        extent = frozenset[Reason]().union(*(v.extent for e, v in values if isinstance(e, ast.Starred)))
        return replace(inner, extent=strongest(extent), parts=())

    def truth(self, node: ast.expr) -> Value:
        """A condition: of a container it asks only whether there is something in it."""
        match node:
            case ast.UnaryOp(op=ast.Not()):
                return self.truth(node.operand)
            case ast.BoolOp():
                return join(*(self.truth(v) for v in node.values))
            case _:
                value = self.value(node)
                return value.presence if value.is_container else value

    def _reason(self, origin: Origin, strength: Strength, node: ast.expr, text: str) -> Reason:
        module = self._scope.function.module
        return Reason(origin, strength, module.path, node.lineno, shortened(module.source(node)), text)

    def _of_source(self, source: ValueSource, node: ast.expr) -> Reason:
        return self._reason(source.origin, source.strength, node, source.text)

    def _unordered(self, node: ast.expr) -> Reason:
        return self._reason(Origin.ORDER, Strength.LIKELY, node, "the order of a set differs between processes")

    def _rank(self, node: ast.expr) -> Value:
        return differing(self._reason(Origin.RANK, Strength.CERTAIN, node, "it is this rank's own number or position"))

    def _name(self, node: ast.Name) -> Value:
        if is_world_word(node.id):
            return EQUAL
        value = self._scope.name(node.id)
        if is_setting_word(node.id):
            # A setting that travels with the data is none of it.
            content, extent = (
                frozenset(r for r in reasons if r.origin is not Origin.LOCAL_DATA)
                for reasons in (value.content, value.extent)
            )
            value = replace(value, content=content, extent=extent)
        if value.equal or value.content:
            return value
        if is_rank_word(node.id) and not self._is_about_matrices(node.id):
            return join(value, self._rank(node))
        if is_loader_word(node.id):
            return join(value, self._loaded(node))
        function = self._scope.function
        if node.id in function.params and is_data_word(node.id) and not is_setting(node.id, function):
            return replace(value, content=self._data(node))
        return value

    def _is_about_matrices(self, name: str) -> bool:
        """`rank` in code for low-rank adapters is the size of a matrix."""
        function = self._scope.function
        named = (function.name, *([function.owner.name] if function.owner else []))
        return name == "rank" and any(is_low_rank_word(n) for n in named)

    def _loaded(self, node: ast.expr) -> Value:
        extent = self._reason(Origin.LOCAL_DATA, Strength.POSSIBLE, node, "ranks may have different numbers of batches")
        return Value(extent=frozenset({extent}))

    def _data(self, node: ast.expr) -> Reasons:
        return frozenset({self._reason(Origin.LOCAL_DATA, Strength.LIKELY, node, "it is this rank's own data")})

    def _attribute(self, node: ast.Attribute) -> Value:
        if is_world_word(node.attr):
            return EQUAL
        known = self._scope.attribute(node)
        if known is not None and (known.equal or known.content or known.params):
            return known
        if is_rank_word(node.attr) and not self._is_size_of_matrix(node):
            return self._rank(node)
        if is_local_attribute(node.attr):
            return Value(self._data(node))
        if node.attr in _TYPE_LIKE:
            return UNKNOWN
        if node.attr in _MEASURES:
            return self._measured(node, self.value(node.value))
        if is_loader_word(node.attr):
            return self._loaded(node)
        if known is not None:
            return known
        if is_loader_word(last_word(node.value)):
            # Of a loader: how it was set up.
            return UNKNOWN
        base = self.value(node.value)
        # An attribute of an object that differs need not differ, unless it is data.
        carried = frozenset(r for r in base.content if r.origin is Origin.LOCAL_DATA)
        return Value(carried, equal=base.equal, made=base.made, unless_equal=base.unless_equal)

    def _is_size_of_matrix(self, node: ast.Attribute) -> bool:
        """`config.lora.rank`, and `self.rank` of an adapter."""
        if node.attr != "rank":
            return False
        of_self = isinstance(node.value, ast.Name) and node.value.id == "self"
        return self._is_about_matrices("rank") if of_self else is_low_rank_word(spelled(node.value) or "")

    def _measured(self, node: ast.expr, base: Value) -> Value:
        """A length or shape: it may differ for local data, and does for what was selected or collected locally."""
        weak = frozenset(
            self._reason(Origin.LOCAL_DATA, Strength.POSSIBLE, node, "it is a size of this rank's own data")
            for r in base.content
            if r.origin is Origin.LOCAL_DATA
        )
        extent = without_order(base.extent)
        return replace(base.presence, content=extent or weak, extent=extent)

    def _compare(self, node: ast.Compare) -> Value:
        operands = [self.value(e) for e in (node.left, *node.comparators)]
        if any(is_minus_one(e) for e in node.comparators) or _asks_for_a_rank(node):
            # `LOCAL_RANK != -1`, `rank < 0`: whether the job is distributed, or this process takes part.
            return EQUAL
        empty = self._emptiness(node)
        if empty is not None:
            return empty
        if all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            # Presence, not content.
            return join(*(v.presence for v in operands))
        if all(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            # `"image" in batch`: fields rarely differ by rank.
            asked = join(operands[0], *(self._measured(node, v) for v in operands[1:]))
            return _weakened(Value(asked.content - asked.extent)) if isinstance(node.left, ast.Constant) else asked
        compared = replace(combined(*operands), parts=(), is_container=False)
        # `batch.get("mode") == "generate"`: a setting that travels with the data.
        return _weakened(compared) if any(_is_text(e) for e in node.comparators) else compared

    def _emptiness(self, node: ast.Compare) -> Value | None:
        """`tokens.numel() == 0`: who asks whether a tensor is empty expects that it is so for some data."""
        tensor = _asked_for_emptiness(node)
        if tensor is None:
            return None
        value = self.value(tensor)
        if value.equal or value.reasons or is_parameter_word(last_word(tensor)):
            return None
        reason = self._reason(Origin.LOCAL_DATA, Strength.LIKELY, node, "this rank's data may leave nothing here")
        if value.params:
            return Value(unless_equal=frozenset((p, reason) for p in value.params))
        return differing(reason)

    def _subscript(self, node: ast.Subscript) -> Value:
        environment = self._environment(node.value, node.slice)
        if environment is not None:
            return environment
        base, index = self.value(node.value), self.value(node.slice)
        value = join(base, replace(index, extent=NO_REASONS))
        if not isinstance(node.slice, ast.Slice):
            value = replace(value, extent=NO_REASONS, is_container=False)
        if is_mask(node.slice) and not value.equal:
            reason = self._reason(
                Origin.LOCAL_DATA, Strength.LIKELY, node, "how much a mask selects depends on this rank's data"
            )
            return replace(value, extent=frozenset({reason}))
        return value

    def _environment(self, mapping: ast.expr, key: ast.expr) -> Value | None:
        dotted = self._resolver.dotted(mapping, self._scope.function)
        if dotted != "os.environ" or not isinstance(key, ast.Constant):
            return None
        source = next((s for s in self._apis.sources if key.value in s.environment), None)
        return differing(self._of_source(source, key)) if source else EQUAL

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Value:
        extent: Reasons = NO_REASONS
        content: list[Value] = []
        kept = dict(self._scope.env)
        for generator in node.generators:
            iterated = self.value(generator.iter)
            self._scope.env.update(dict.fromkeys(names_in(generator.target), self.element(generator.iter, iterated)))
            tests = [self.truth(test) for test in generator.ifs]
            extent |= iterated.extent.union(*(t.reasons for t in tests))
            content.append(
                iterated if not tests else replace(iterated, equal=iterated.equal and all(t.equal for t in tests))
            )
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        inner = join(*(self.value(p) for p in parts))
        self._scope.env.clear()
        self._scope.env.update(kept)
        if isinstance(node, ast.SetComp):
            extent |= {self._unordered(node)}
        equal = inner.equal and all(c.equal for c in content)
        return replace(inner, extent=strongest(extent), equal=equal, parts=(), is_container=True)

    def element(self, iterable: ast.expr, iterated: Value) -> Value:
        """One element of an iterable: its content, not the number of elements."""
        item = replace(iterated, extent=NO_REASONS, parts=(), is_container=False)
        if is_loader_word(last_word(iterable)) and not item.equal:
            # The loader is the same on all ranks; its batches are not.
            item = replace(item, content=strongest(item.content | self._data(iterable)))
        if isinstance(iterable, ast.Call) and iterable.args and isinstance(iterable.func, ast.Name):
            if iterable.func.id == "enumerate":
                return replace(item, parts=(EQUAL, self.element(iterable.args[0], iterated)))
            if iterable.func.id in {"tqdm", "iter", "list", "reversed", "islice"}:
                return self.element(iterable.args[0], iterated)
            if iterable.func.id == "zip":
                return replace(item, parts=tuple(self.element(a, self.value(a)) for a in iterable.args))
        return item

    # calls

    def _call(self, node: ast.Call) -> Value:
        values = {a: self.value(a) for a in (*node.args, *(k.value for k in node.keywords))}
        self._scope.passed(values)
        source = self._source(node)
        if source is not None:
            return self._from_source(source, node, values)
        api = self._communication.api(node, self._scope.function)
        if api is not None:
            return self._communicated(api, node)
        self._mutate(node, values)
        name = last_word(node.func)
        returned = self._scope.returned(node, values)
        if is_world_word(name):
            return EQUAL
        if returned is not None and (returned.equal or (returned.reasons and not self._agrees(node, name))):
            return returned
        if is_rank_word(name):
            return self._rank(node)
        if self._agrees(node, name):
            return MADE_EQUAL
        return returned if returned is not None else self._unknown(node, name, list(values.values()))

    def _agrees(self, node: ast.Call, name: str) -> bool:
        """It reduces or broadcasts something, and its name says so: the result is the same on all ranks."""
        reach = self._communication.reach(node, self._scope.function)
        return reach is not None and reach.api.made_equal != "" and is_agreement_word(name)

    def _source(self, node: ast.Call) -> ValueSource | None:
        dotted = self._resolver.dotted(node.func, self._scope.function)
        if dotted in {"os.environ.get", "os.getenv"} and node.args and isinstance(node.args[0], ast.Constant):
            return next((s for s in self._apis.sources if node.args[0].value in s.environment), None)
        if dotted is not None:
            return next((s for s in self._apis.sources if dotted in s.calls), None)
        if not isinstance(node.func, ast.Attribute):
            return None
        if node.func.attr == "acquire" and any(
            isinstance(a, ast.Constant) and a.value is False for a in all_arguments(node)
        ):
            return next(s for s in self._apis.sources if s.origin is Origin.TIMING)
        for source in self._apis.sources:
            if node.func.attr in source.methods and receiver_fits(node.func.value, source.receiver):
                return None if names_and_attributes_in(node.func.value) & _MESHES else source
        return None

    def _from_source(self, source: ValueSource, node: ast.Call, values: dict[ast.expr, Value]) -> Value:
        base = [self.value(node.func.value)] if isinstance(node.func, ast.Attribute) else []
        if self._resolver.dotted(node.func, self._scope.function) is not None:
            base = []
        about = join(*base, *values.values())
        reason = self._of_source(source, node)
        if not source.unless_equal:
            order = source.origin is Origin.ORDER
            return Value(NO_REASONS, frozenset({reason})) if order else differing(reason)
        if about.equal:
            return Value(equal=True, made=about.made)
        if about.params and not about.content:
            return Value(unless_equal=frozenset((p, reason) for p in about.params))
        return Value(strongest(about.content | {reason}), about.extent, params=about.params)

    def _communicated(self, api: Api, node: ast.Call) -> Value:
        arguments = node.args[1:] if last_word(node.func) in RUNS_ITS_ARGUMENT else node.args
        if isinstance(api.made_equal, int) and len(arguments) > api.made_equal:
            self.make_equal(arguments[api.made_equal])
            return MADE_EQUAL
        if isinstance(api.made_equal, int):
            for keyword in node.keywords:
                if keyword.arg in {"tensor", "tensor_list", "object_list", "output_tensor", "tensors"}:
                    self.make_equal(keyword.value)
            return MADE_EQUAL
        return MADE_EQUAL if api.made_equal == "result" else UNKNOWN

    def make_equal(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._scope.env[target.id] = MADE_EQUAL
        elif isinstance(target, ast.Attribute):
            self._scope.env[spelled(target) or ""] = MADE_EQUAL
        elif isinstance(target, ast.Subscript | ast.Starred):
            self.make_equal(target.value)

    def _mutate(self, node: ast.Call, values: dict[ast.expr, Value]) -> None:
        """`xs.append(x)` under a decision that differs: the length of the list differs too."""
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr not in MUTATES:
            return
        if isinstance(func.value, ast.Attribute):
            self._scope.grown(func.value, join(*(Value(v.content, equal=v.equal) for v in values.values())))
        if isinstance(func.value, ast.Name):
            name = func.value.id
            if name in self._scope.env:
                added = join(self._scope.env[name], *(Value(v.content, equal=v.equal) for v in values.values()))
                decision = Value(self._scope.context.reasons)
                self._scope.env[name] = decided_by(added, decision) if decision.content else added

    def _unknown(self, node: ast.Call, name: str, arguments: list[Value]) -> Value:
        dotted = self._resolver.dotted(node.func, self._scope.function)
        if (dotted or "").startswith(_NUMERIC):
            return self._computed(node, name)
        if isinstance(node.func, ast.Attribute) and dotted is None:
            return self._of_method(node.func, arguments)
        known = self._builtin(node, name, join(*arguments))
        return known if known is not None else _passed_on(join(*arguments), keep_equal=False)

    def _computed(self, node: ast.Call, name: str) -> Value:
        given = [*node.args, *(k.value for k in node.keywords if k.arg not in _PLACEMENT)]
        value = combined(*(self.value(a) for a in given)) if given else EQUAL
        if name in _FRESH:
            sizes = value.extent if name.endswith("_like") else value.reasons
            return Value(extent=sizes, equal=not sizes)
        return replace(value, is_container=False)

    def _of_method(self, func: ast.Attribute, arguments: list[Value]) -> Value:
        base = self.value(func.value)
        if func.attr in {"keys", "values", "items"}:
            return base
        if func.attr in _TYPE_LIKE:
            return UNKNOWN
        if func.attr in _MEASURES:
            # The members of a group agree on its size.
            return EQUAL if receiver_fits(func.value, _GROUPS) else self._measured(func, base)
        made = _passed_on(join(base, *arguments), keep_equal=True, extent=without_order(base.extent))
        return replace(made, params=base.params, sizes=base.sizes, unless_equal=base.unless_equal)

    def _builtin(self, node: ast.Call, name: str, value: Value) -> Value | None:
        match name:
            case "next" if node.args:
                return self.element(node.args[0], value)
            case "len":
                return self._measured(node, value)
            case "sorted":
                return replace(in_sorted_order(value), is_container=True)
            case "isinstance" | "hasattr" | "callable" | "type":
                # Its type, not its content.
                return Value(without_order(value.extent))
            case "set" | "frozenset":
                extent = strongest(value.extent | {self._unordered(node)})
                return replace(value, extent=extent, equal=False, made=False, is_container=True)
            case "range":
                known = not without_order(value.reasons)
                return replace(value, content=NO_REASONS, extent=without_order(value.reasons), equal=known, parts=())
            case _:
                holds = name in _COLLECTS or name in _CONTAINERS
                return replace(value, is_container=holds) if holds or name in _PURE else None


def _asks_for_a_rank(node: ast.Compare) -> bool:
    """`rank < 0`, `rank >= 0`."""
    to_zero = [c for c in node.comparators if isinstance(c, ast.Constant) and c.value == 0]
    return is_rank_word(last_word(node.left)) and bool(to_zero) and isinstance(node.ops[0], ast.Lt | ast.GtE)


def _asked_for_emptiness(node: ast.Compare) -> ast.expr | None:
    """`x` of `x.numel() == 0`, `x.shape[0] == 0`, `x.size(0) > 0` and `x.sum() == 0`."""
    compared = node.comparators[0]
    if len(node.ops) != 1 or not (isinstance(compared, ast.Constant) and compared.value == 0):
        return None
    match node.left:
        case ast.Call(func=ast.Attribute(attr="numel" | "nelement" | "size" | "sum") as func):
            return func.value
        case ast.Subscript(value=ast.Attribute(attr="shape") as shape):
            return shape.value
        case _:
            return None


def _is_text(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Constant) and isinstance(expr.value, str)


def _weakened(value: Value) -> Value:
    """Data is a weak reason for it, and what callers pass none."""
    content, extent = (
        frozenset(replace(r, strength=Strength.POSSIBLE) if r.origin is Origin.LOCAL_DATA else r for r in reasons)
        for reasons in (value.content, value.extent)
    )
    return Value(content, extent, value.equal, value.made)


def without_order(reasons: Reasons) -> Reasons:
    return frozenset(r for r in reasons if r.origin is not Origin.ORDER)


def _passed_on(value: Value, *, keep_equal: bool, extent: Reasons = NO_REASONS) -> Value:
    """The result of an unknown call: local data stays local; a rank number may be used for anything."""
    content = frozenset(r for r in value.content if r.origin is not Origin.RANK)
    equal = value.equal and keep_equal
    return Value(content, extent, equal, equal and value.made)
