"""Whether the data of a call has the same size on all ranks, as far as the source shows it.

A gradient has the size of its parameter, a loss is one number, and `torch.tensor([hits, seen])` has two elements
whatever their values. What is made from a rank's own data (a batch, a growing list, a mask) may have any size, and so
may values that cannot be traced.
"""

import ast

from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin
from forkpoint.source.code import Function
from forkpoint.source.syntax import Comprehension, argument_for, last_word

_DEPTH = 6
"""Assignments and calls to follow."""
_CALLERS = 4
_CARRY_NOTHING = frozenset(
    {"barrier", "monitored_barrier", "backward", "forward", "clip_grad_norm_", "destroy_process_group"}
)
"""Calls without data of the program, and passes of a model, whose parameters are the same on all ranks."""
_SETTINGS = frozenset(
    {"group", "op", "async_op", "src", "dst", "group_src", "group_dst", "tag", "device_ids", "device"}
)
_OF_PARAMETERS = frozenset({"grad", "weight", "bias"})
_HOLD_PARAMETERS = frozenset({"parameters", "named_parameters", "buffers", "named_buffers", "state_dict"})
_ONE_NUMBER = frozenset(
    {"item", "float", "int", "bool", "len", "numel", "norm", "sum", "mean", "max", "min", "all", "any", "dot", "time"}
)
_KEEP_SIZE = frozenset({
    *("detach", "clone", "to", "cuda", "cpu", "float", "double", "half", "bfloat16", "int", "long", "contiguous", "flatten", "type"),
    *("abs", "sqrt", "exp", "log", "clamp", "add", "sub", "mul", "div", "neg", "square", "pow", "round", "requires_grad_", "data"),
    *("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like", "deepcopy", "view", "reshape", "ravel"),
    *("isnan", "isinf", "isfinite", "_flatten_dense_tensors", "parameters_to_vector", "cat", "stack", "list", "tuple", "sorted"),
})  # fmt: skip
_OF_DIMENSIONS = frozenset({"zeros", "ones", "empty", "full", "rand", "randn", "arange", "eye"})
_LOSSES = ("loss", "cross_entropy", "criterion", "loss_fn", "nll")
_WORLD = ("world", "world_size", "get_world_size")


def are_fixed(call: ast.Call, function: Function, analysis: Analysis) -> bool:
    """For a call that communicates: what it sends and receives has the same size on all ranks."""
    api = analysis.communication.api(call, function)
    name = last_word(call.func)
    if api is None or api.op in _CARRY_NOTHING or "object" in name:
        return api is not None
    given = [*call.args, *(k.value for k in call.keywords if k.arg not in _SETTINGS)]
    return bool(given) and all(_Sizes(analysis).fixed(one, function, _DEPTH) for one in given if not _is_setting(one))


def are_own(call: ast.Call, function: Function, analysis: Analysis) -> bool:
    """For a call that communicates: the size of what it sends depends on the rank's own data."""
    api = analysis.communication.api(call, function)
    if api is None or "object" in last_word(call.func):
        return False
    values = [analysis.differences.argument(one, function) for one in call.args]
    local = [reason for value in values for reason in value.reasons if reason.origin is Origin.LOCAL_DATA]
    return any(reason.of_amount for reason in local) or any(value.extent & set(local) for value in values)


def _is_setting(expr: ast.expr) -> bool:
    """A rank, an operation or a group among the positional arguments."""
    return isinstance(expr, ast.Constant) or "ReduceOp" in ast.dump(expr)


class _Sizes:
    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis

    def fixed(self, expr: ast.expr, function: Function, depth: int) -> bool:
        if isinstance(expr, ast.Attribute) and expr.attr in _OF_PARAMETERS:
            return True
        if depth == 0 or self._analysis.differences.argument(expr, function).extent:
            return False
        match expr:
            case ast.Constant() | ast.Compare():
                return True
            case ast.Name(id=name):
                return name.isupper() or name in _WORLD or self._name(name, function, depth - 1)
            case ast.Attribute(value=value, attr="data"):
                return self.fixed(value, function, depth - 1)
            case ast.Call():
                return self._called(expr, function, depth - 1)
            case (
                ast.Starred(value=value) | ast.UnaryOp(operand=value) | ast.Subscript(value=value, slice=ast.Constant())
            ):
                return self.fixed(value, function, depth - 1)
            case ast.BinOp(left=left, right=right) | ast.IfExp(body=left, orelse=right):
                return all(self.fixed(one, function, depth - 1) for one in (left, right))
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return all(self.fixed(one, function, depth - 1) for one in elements)
            case ast.ListComp(elt=element) | ast.GeneratorExp(elt=element):
                return self._comprehended(expr, element, function, depth - 1)
            case _:
                return False

    def _comprehended(self, made: Comprehension, element: ast.expr, function: Function, depth: int) -> bool:
        """It has as many elements as there are parameters or ranks, each of a fixed size."""
        over = made.generators[0].iter
        counted = (
            isinstance(over, ast.Call)
            and last_word(over.func) == "range"
            and self.fixed(over.args[-1], function, depth)
        )
        return (
            len(made.generators) == 1
            and (counted or _holds_parameters(over))
            and (self.fixed(element, function, depth) or _is_of(element, made.generators[0].target))
        )

    def _name(self, name: str, function: Function, depth: int) -> bool:
        loops = [n for n in ast.walk(function.node) if isinstance(n, ast.For | ast.comprehension)]
        over = [n.iter for n in loops if name in {t.id for t in ast.walk(n.target) if isinstance(t, ast.Name)}]
        values = self._analysis.resolver.assigned(function).get(name, ())
        if over:
            return not values and all(map(_holds_parameters, over))
        if values:
            return all(self.fixed(value, function, depth) for value in values)
        return name in function.params and self._passed(name, function, depth)

    def _passed(self, name: str, function: Function, depth: int) -> bool:
        sites = list(self._analysis.resolver.call_sites(function))[: _CALLERS + 1]
        passed = [(argument_for(name, call, function), caller) for call, caller in sites]
        return 0 < len(sites) <= _CALLERS and all(a is not None and self.fixed(a, f, depth) for a, f in passed)

    def _called(self, call: ast.Call, function: Function, depth: int) -> bool:
        name, arguments = last_word(call.func), call.args
        own = self._analysis.resolver.callees(call, function)
        if own.functions:
            returns = [(n.value, f) for f in own.functions for n in f.own.returns if n.value is not None]
            return own.exact and bool(returns) and all(self.fixed(value, f, depth) for value, f in returns)
        if name.lower().endswith(_LOSSES):
            return not any(k.arg == "reduction" for k in call.keywords)
        if name == "tensor":
            return bool(arguments) and self._literal(arguments[0], function, depth)
        if name in _OF_DIMENSIONS:
            return all(self.fixed(one, function, depth) for one in arguments)
        if name in _ONE_NUMBER and not any(k.arg in {"dim", "axis"} for k in call.keywords):
            return not isinstance(call.func, ast.Attribute) or not arguments
        if name in _KEEP_SIZE:
            kept = call.func.value if isinstance(call.func, ast.Attribute) and not _is_module(call.func.value) else None
            return (
                self.fixed(kept, function, depth)
                if kept is not None
                else self.fixed(arguments[0], function, depth)
                if arguments
                else False
            )
        return name == "get_world_size"

    def _literal(self, expr: ast.expr, function: Function, depth: int) -> bool:
        """`[hits, seen]` has two elements; for a name, its assignments must show how many."""
        if isinstance(expr, ast.List | ast.Tuple):
            return all(
                not isinstance(e, ast.Starred | ast.List) or self._literal(e, function, depth - 1) for e in expr.elts
            )
        return self.fixed(expr, function, depth)


def _is_module(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Name) and expr.id in {"torch", "copy", "np", "F"}


def _holds_parameters(expr: ast.expr) -> bool:
    """`model.parameters()`, also in `enumerate`, `list` or `sorted` and for the values of a dictionary."""
    return any(isinstance(n, ast.Call) and last_word(n.func) in _HOLD_PARAMETERS for n in ast.walk(expr))


def _is_of(element: ast.expr, target: ast.expr) -> bool:
    """It depends only on the loop's own variable: `p.grad.view(-1)` of a parameter."""
    names = {n.id for n in ast.walk(element) if isinstance(n, ast.Name)}
    return names <= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)} | {"torch"}
