"""A call -> Value: whether what it returns can differ by rank, and what it changes."""

import ast
import re
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import PurePath
from typing import Protocol

from forkpoint.source.apis import (
    Api,
    Origin,
    Strength,
    ValueSource,
    is_agreement_word,
    is_counter_word,
    is_data_word,
    is_device_word,
    is_rank_word,
    is_world_word,
    known_apis,
)
from forkpoint.source.beginnings import Place
from forkpoint.source.classes import MUTATES
from forkpoint.source.code import Function, spelled
from forkpoint.source.communicates import Communication
from forkpoint.source.questions import asks_for_the_root, is_text, of_one_item
from forkpoint.source.resolve import RUNS_ITS_ARGUMENT, Resolver
from forkpoint.source.syntax import (
    all_arguments,
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
    "zip", "reversed", "dict", "repr", "bytes", "bytearray", "divmod", "pow", "iter", "next", "map", "filter", "tqdm", "trange", "deepcopy",
    "copy", "hash",
})  # fmt: skip
MEASURES = frozenset({"numel", "size", "shape", "ndim", "nelement", "dim", "keys", "values", "items"})
_COLLECTS = frozenset({"list", "tuple", "reversed", "dict", "deepcopy", "copy", "filter", "map", "zip", "enumerate", "bytes",
                       "bytearray"})  # fmt: skip
"""Of `_PURE`, those whose result holds elements."""
_MESHES = frozenset({"mesh", "device_mesh"})
"""A table of ranks, the same on all ranks."""
_CONTAINERS = frozenset({"defaultdict", "deque", "OrderedDict", "Counter"})
_PLACEMENT = frozenset({"device", "dtype", "generator", "pin_memory", "requires_grad", "non_blocking"})
"""Arguments that say where a tensor is, not what is in it."""
_FRESH = frozenset({"zeros", "ones", "empty", "zeros_like", "ones_like", "empty_like", "eye"})
"""Tensors with the same content everywhere; only sizes come from the arguments."""
TYPE_LIKE = frozenset({"dtype", "device", "requires_grad", "element_size", "itemsize", "stride", "layout", "is_contiguous",
                        "is_cuda", "is_floating_point", "is_complex", "is_sparse"})  # fmt: skip
"""About a tensor: what kind it is, not what it holds."""
_OF_CLOCKS = frozenset({"total_seconds", "timestamp"})
"""Methods of a time and of a duration that return the same as a number."""
_OF_SETS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
"""Methods of a set that make another one."""
_REDUCES = frozenset(
    {"sum", "mean", "min", "max", "norm", "std", "var", "any", "all", "prod", "median", "amax", "amin"}
)
"""Reductions to a single number, whatever the size of the input."""
_GROUPS = ("group", "pg", "mesh", "comm", "communicator")
_OWN_DISK = re.compile(
    r"""['"]/(tmp|dev/shm|scratch|local)\b|\btempfile\.(mkdtemp|gettempdir|mkstemp)|\bTMPDIR\b|['"]~/\.cache"""
)
_FOLLOWED = 3
"""Assignments to follow from a path to the folder that it is in."""
_NUMERIC = ("torch.", "numpy.", "math.", "itertools.", "functools.", "operator.")


class Scope(Protocol):
    """What the evaluation of an expression needs from the function around it."""

    function: Function
    env: dict[str, Value]

    @property
    def growth(self) -> Value:
        """What decides how often this code runs, and thus how much it puts into a container."""
        ...

    def attribute(self, expr: ast.Attribute) -> Value | None: ...
    def name(self, name: str) -> Value: ...
    def returned(self, call: ast.Call, arguments: dict[ast.expr, Value]) -> Value | None: ...
    def test(self, node: ast.expr, value: Value) -> None: ...
    def passed(self, arguments: dict[ast.expr, Value]) -> None: ...
    def grown(self, container: ast.Attribute, added: Value) -> None: ...
    def yielded(self, value: Value) -> None: ...
    def seeded_by_rank(self, drawn: str) -> Place | None: ...
    def is_being_made(self, asked: ast.Call) -> bool: ...
    def forget_items(self, container: str) -> None: ...


class CallValues(ABC):
    """Of expressions, the part that looks at calls; `Expressions` has the rest."""

    def __init__(self, scope: Scope, resolver: Resolver, communication: Communication) -> None:
        self._scope = scope
        self._resolver = resolver
        self._communication = communication
        self._apis = known_apis()

    @abstractmethod
    def value(self, node: ast.expr | None) -> Value: ...

    @abstractmethod
    def element(self, iterable: ast.expr, iterated: Value) -> Value:
        """One element of an iterable: its content, not the number of elements."""

    def _reason(
        self, origin: Origin, strength: Strength, node: ast.expr, text: str, *, of_amount: bool = False
    ) -> Reason:
        module = self._scope.function.module
        return Reason(origin, strength, module.path, node.lineno, shortened(module.source(node)), text, of_amount)

    def _of_source(self, source: ValueSource, node: ast.expr) -> Reason:
        return self._reason(source.origin, source.strength, node, source.text, of_amount=source.selects)

    def _unordered(self, node: ast.expr) -> Reason:
        return self._reason(Origin.ORDER, Strength.LIKELY, node, "the order of a set differs between processes")

    def _rank(self, node: ast.expr) -> Value:
        return differing(self._reason(Origin.RANK, Strength.CERTAIN, node, "it is this rank's own number or position"))

    def _measured(self, node: ast.expr, base: Value) -> Value:
        """A length or shape: it may differ for local data, and does for what was selected or collected locally."""
        weak = frozenset(
            self._reason(Origin.LOCAL_DATA, Strength.POSSIBLE, node, "it is a size of this rank's own data")
            for r in base.content
            if r.origin is Origin.LOCAL_DATA
        )
        # A number: what differs is its value, and it has no size of its own.
        return replace(base.presence, content=without_order(base.extent) or weak, extent=NO_REASONS)

    def call_value(self, node: ast.Call) -> Value:
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
        if is_world_word(name) or is_device_word(name):
            return EQUAL
        if returned is not None and "scatter" in name:
            # What one rank sends to each other one says nothing of the rank, although the sender finds it by its rank.
            return UNKNOWN
        if returned is not None and (returned.equal or (returned.reasons and not self._agrees(node, name))):
            return returned
        if is_rank_word(name) or (isinstance(node.func, ast.Attribute) and asks_for_the_root(node.func)):
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
            # `where(mask)` finds places, `where(mask, a, b)` chooses.
            is_choice = dotted.endswith(".where") and len(node.args) != 1
            return next((s for s in self._apis.sources if dotted in s.calls and not is_choice), None)
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
        reason = self._known_to_differ(source, node) or self._of_source(source, node)
        if not source.unless_equal:
            order = source.origin is Origin.ORDER
            return Value(NO_REASONS, frozenset({reason})) if order else differing(reason)
        if about.equal:
            return Value(equal=True, made=about.made)
        extent = strongest(about.extent | {reason}) if source.selects else about.extent
        if about.params and not about.content:
            kept = extent if source.selects else NO_REASONS
            return Value(extent=kept, unless_equal=frozenset((p, reason) for p in about.params))
        return Value(strongest(about.content | {reason}), extent, params=about.params)

    def _known_to_differ(self, source: ValueSource, node: ast.Call) -> Reason | None:
        """A stronger reason than the table gives, if this program shows that the value does differ by rank; or a weaker one."""
        if (
            source.origin is Origin.LOCAL_DATA
            and isinstance(node.func, ast.Attribute)
            and _counts_steps(node.func.value)
        ):
            return self._reason(
                Origin.LOCAL_DATA, Strength.POSSIBLE, node, "ranks may have made different numbers of steps"
            )
        if source.origin is Origin.RANDOM and not any(k.arg == "generator" for k in node.keywords):
            seeded = self._scope.seeded_by_rank(self._resolver.dotted(node.func, self._scope.function) or "")
            if seeded is not None:
                where = f"{PurePath(seeded.path).name}:{seeded.line}"
                return self._reason(Origin.RANDOM, Strength.LIKELY, node, f"each rank has a seed of its own ({where})")
        if source.origin is Origin.FILES and self._scope.is_being_made(node):
            text = "one rank makes it, and nothing makes the others wait for that"
            return self._reason(Origin.FILES, Strength.LIKELY, node, text)
        if source.origin is Origin.FILES and self._is_on_own_disk(node, _FOLLOWED):
            return self._reason(Origin.FILES, Strength.LIKELY, node, "each node has a folder of its own there")
        return None

    def _is_on_own_disk(self, expr: ast.expr, depth: int) -> bool:
        """The path is made from a folder for temporary files, shared memory or a home folder's cache."""
        if _OWN_DISK.search(self._scope.function.module.source(expr)):
            return True
        assigned = self._resolver.assigned(self._scope.function)
        made = [v for name in names_in(expr) for v in assigned.get(name, ())]
        return depth > 0 and any(self._is_on_own_disk(v, depth - 1) for v in made[:_FOLLOWED])

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
            self._scope.forget_items(target.id)
        elif isinstance(target, ast.Attribute):
            self._scope.env[spelled(target) or ""] = MADE_EQUAL
        elif isinstance(target, ast.Subscript | ast.Starred):
            self.make_equal(target.value)

    def _mutate(self, node: ast.Call, values: dict[ast.expr, Value]) -> None:
        """`xs.append(x)` under a decision that differs: the length of the list differs too."""
        func = node.func
        if not isinstance(func, ast.Attribute) or func.attr not in MUTATES:
            return
        # `by_name[key].append(x)` of a dictionary that creates missing entries: it has the keys that were used.
        container = func.value.value if isinstance(func.value, ast.Subscript) else func.value
        if isinstance(container, ast.Attribute):
            self._scope.grown(container, join(*(Value(v.content, equal=v.equal) for v in values.values())))
        if isinstance(container, ast.Name):
            name = container.id
            self._scope.forget_items(name)
            if name in self._scope.env:
                added = join(self._scope.env[name], *(Value(v.content, equal=v.equal) for v in values.values()))
                self._scope.env[name] = decided_by(added, self._scope.growth)

    def _unknown(self, node: ast.Call, name: str, arguments: list[Value]) -> Value:
        dotted = self._resolver.dotted(node.func, self._scope.function)
        if (dotted or "").startswith(_NUMERIC):
            return self._computed(node, name)
        if isinstance(node.func, ast.Attribute) and dotted is None:
            return self._of_method(node.func, node, arguments)
        known = self._builtin(node, name, join(*arguments))
        return known if known is not None else _passed_on(join(*arguments), keep_equal=False)

    def _computed(self, node: ast.Call, name: str) -> Value:
        given = [*node.args, *(k.value for k in node.keywords if k.arg not in _PLACEMENT)]
        value = combined(*(self.value(a) for a in given)) if given else EQUAL
        if name in _FRESH:
            sizes = value.extent if name.endswith("_like") else value.reasons
            return Value(extent=sizes, equal=not sizes)
        extent = NO_REASONS if name in _REDUCES else value.extent
        return replace(value, extent=extent, is_container=False)

    def _of_method(self, func: ast.Attribute, call: ast.Call, arguments: list[Value]) -> Value:
        base = self.value(func.value)
        if func.attr in {"get", "pop"} and call.args and is_text(call.args[0]):
            base = of_one_item(base, call.args[0])
        if func.attr in {"keys", "values", "items"} or func.attr in _OF_CLOCKS:
            return base
        if func.attr in TYPE_LIKE:
            return UNKNOWN
        if func.attr in MEASURES:
            # The members of a group agree on its size.
            return EQUAL if receiver_fits(func.value, _GROUPS) else self._measured(func, base)
        kept = base.extent if func.attr in _OF_SETS else without_order(base.extent)
        kept = NO_REASONS if func.attr in _REDUCES else kept
        made = _passed_on(join(base, *arguments), keep_equal=True, extent=kept)
        return replace(made, params=base.params, sizes=base.sizes, unless_equal=base.unless_equal)

    def _of_metric(self, node: ast.Call) -> Value | None:
        """`len(metric.targets)`: what it has counted so far."""
        match node.args:
            case [ast.Attribute(value=metric)] if self._communication.is_metric(metric, self._scope.function):
                text = "until it is computed, a metric holds only what this rank's data gave it"
                return differing(self._reason(Origin.LOCAL_DATA, Strength.LIKELY, node, text))
            case _:
                return None

    def _builtin(self, node: ast.Call, name: str, value: Value) -> Value | None:
        match name:
            case "next" if node.args:
                return self.element(node.args[0], value)
            case "len":
                return self._of_metric(node) or self._measured(node, value)
            case "sorted":
                return replace(value if _leaves_ties(node) else in_sorted_order(value), is_container=True)
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


def _leaves_ties(call: ast.Call) -> bool:
    """`sorted(xs, key=lambda x: 0 if x in first else 1)`: elements with equal keys keep their order."""
    key = next((k.value for k in call.keywords if k.arg == "key"), None)
    plain = ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant
    match key:
        case ast.Lambda(body=ast.IfExp() as chosen):
            return isinstance(chosen.body, ast.Constant) and isinstance(chosen.orelse, ast.Constant)
        case ast.Lambda(body=body):
            return isinstance(body, plain)
        case _:
            return False


def without_order(reasons: Reasons) -> Reasons:
    return frozenset(r for r in reasons if r.origin is not Origin.ORDER)


def _counts_steps(expr: ast.expr) -> bool:
    """`(agent_steps >= max_steps).all()`: ranks that work in step count alike."""
    names = names_and_attributes_in(expr)
    return any(map(is_counter_word, names)) and not any(map(is_data_word, names))


def _passed_on(value: Value, *, keep_equal: bool, extent: Reasons = NO_REASONS) -> Value:
    """The result of an unknown call: local data stays local; a rank number or a clock may be used for anything, such as the
    name of a folder.
    """
    content = frozenset(r for r in value.content if r.origin not in {Origin.RANK, Origin.TIME})
    equal = value.equal and keep_equal
    return Value(content, extent, equal, equal and value.made)
