"""A part of the model that runs only if this rank's data needs it.

Under DDP, FSDP and ZeRO each part of the model communicates when it runs forward or backward. A vision tower that a
text-only batch skips, an expert without tokens, a head without targets: that rank makes fewer calls than the others.

Run the part on all ranks; where there is nothing to do, use a dummy input and multiply the result by zero.

On by default where a module asks whether its data is empty (`pos_rois.shape[0] == 0`, `not mask.any()`) and leaves out one of its own parts.
Advisory where it asks for a field that may be missing: source shows neither whether batches differ in it nor how the model is wrapped.

Not reported: code that only predicts, and functions that multiply something by zero so that every part takes part.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from forkpoint.lint.decisions import violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import is_data_word
from forkpoint.source.code import Class, Function
from forkpoint.source.flow import exit_of
from forkpoint.source.syntax import (
    argument_for,
    block_of,
    branches_and_loops,
    is_setting,
    last_word,
    names_in,
    own_nodes,
)

CODE = "module-skipped-by-data"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.program.functions():
        yield from _by_field(function, analysis)
        if analysis.communication.trains and not _only_predicts(function) and not _takes_part_anyway(function):
            yield from _by_emptiness(function, analysis)


# ---------------------------------------------------------------------------------------------------------------------
# A field of the batch that may be missing.

_PARTS = ("visual", "vision_tower", "vision_model", "audio_tower", "image_encoder", "encoder", "projector", "expert",
          "experts", "mask_head", "vision_encoder", "audio_encoder")  # fmt: skip


def _by_field(function: Function, analysis: Analysis) -> Iterator[Violation]:
    for node in own_nodes(function.node):
        if not isinstance(node, ast.If) or not _asks_for_data(node.test, function):
            continue
        part = next((p for s in node.body for p in _named_parts(s, function, analysis)), None)
        other = any(True for s in node.orelse for _ in _named_parts(s, function, analysis))
        if part is not None and not other:
            yield violation(
                CODE,
                f"{last_word(part.func)} runs only on ranks whose data needs it, and communicates under DDP, FSDP or ZeRO",
                function,
                part,
                condition=node.test,
                advisory=True,
            )


def _asks_for_data(test: ast.expr, function: Function) -> bool:
    """`pixel_values is None`, `mask.any()`, `len(tokens) > 0` of a parameter that holds data."""
    names = names_in(test) & set(function.params)
    return any(is_data_word(n) or n.startswith(("pixel_", "image", "video")) for n in names)


def _named_parts(statement: ast.stmt, function: Function, analysis: Analysis) -> Iterator[ast.Call]:
    for node in ast.walk(statement):
        is_part = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PARTS
        if is_part and isinstance(node, ast.Call) and analysis.resolver.dotted(node.func, function) is None:
            yield node


# ---------------------------------------------------------------------------------------------------------------------
# Data of which nothing is left.

_PREDICTS = frozenset({
    *("predict", "prediction", "predictions", "generate", "inference", "infer", "test", "eval", "evaluate", "sample", "decode", "visualize"),
    *("plot", "metric", "metrics", "log", "export", "preprocess", "postprocess"),
})  # fmt: skip
_WITHOUT_GRADIENTS = frozenset({"no_grad", "inference_mode"})
_TIMES_ZERO = re.compile(r"\*\s*0(\.0*)?(?![\w.])|(?<![\w.])0(\.0*)?\s*\*(?!\*)")
_DEPTH = 6
"""Assignments to follow from what is asked to the data it comes from."""


def _only_predicts(function: Function) -> bool:
    words = set(function.short.lower().split("_"))
    return bool(words & _PREDICTS) or any(last_word(d) in _WITHOUT_GRADIENTS for d in function.decorators())


def _takes_part_anyway(function: Function) -> bool:
    """`loss + 0 * sum(p.sum() for p in self.head.parameters())`."""
    return (
        isinstance(function.node, ast.Module) or _TIMES_ZERO.search(function.module.source(function.node)) is not None
    )


def _by_emptiness(function: Function, analysis: Analysis) -> Iterator[Violation]:
    for node in branches_and_loops(function):
        if not isinstance(node, ast.If):
            continue
        full = _holds_if_full(node.test, function, analysis)
        if full is None:
            continue
        some, none = (node.body, node.orelse) if full else (node.orelse, node.body)
        leaves = exit_of(none) if none else None
        if leaves in {"return", "continue"} and not some:
            block = block_of(node, function)
            some = block[block.index(node) + 1 :]
        elif leaves is not None:
            continue
        done = {ast.unparse(p.func) for p in _parts(none, function, analysis)}
        part = next((p for p in _parts(some, function, analysis) if ast.unparse(p.func) not in done), None)
        if part is not None:
            yield violation(
                CODE,
                f"a rank whose data leaves nothing here does not run {ast.unparse(part.func)}, which communicates under DDP, FSDP or ZeRO",
                function,
                none[-1] if leaves is not None else part,
                condition=node.test,
            )


def _holds_if_full(test: ast.expr, function: Function, analysis: Analysis) -> bool | None:
    """Whether the condition holds where there is data, or where there is none; None if it asks for something else."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            full = _holds_if_full(inner, function, analysis)
            return None if full is None else not full
        case ast.BoolOp(op=op, values=values):
            wanted = isinstance(op, ast.And)
            return wanted if any(_holds_if_full(v, function, analysis) is wanted for v in values) else None
        case ast.Compare(ops=[op], comparators=[ast.Constant(value=0)]) if _is_amount(
            test.left, function, analysis, _DEPTH
        ):
            kinds: dict[type[ast.cmpop], bool] = {ast.Eq: False, ast.LtE: False, ast.Gt: True, ast.NotEq: True}
            return kinds.get(type(op))
        case ast.Call(func=ast.Attribute(attr="any", value=mask)):
            asked = test.args[0] if last_word(mask) == "torch" and test.args else mask
            return True if _is_of_data(asked, function, analysis, _DEPTH) else None
        case _:
            return None


def _is_amount(expr: ast.expr, function: Function, analysis: Analysis, depth: int) -> bool:
    """How much of this rank's data there is: `x.numel()`, `x.shape[0]`, `max(len(t) for t in targets)`."""
    match expr:
        case ast.Call(
            func=ast.Attribute(attr="numel" | "nelement" | "sum" | "size" | "item" | "count_nonzero", value=asked)
        ):
            return _is_of_data(asked, function, analysis, depth)
        case ast.Subscript(value=ast.Attribute(attr="shape", value=asked), slice=ast.Constant(value=0)):
            return _is_of_data(asked, function, analysis, depth)
        case ast.Call(func=ast.Name(id="len"), args=[asked]):
            return _is_of_data(asked, function, analysis, depth, by_name=True)
        case ast.Call(func=ast.Name(id="max" | "sum"), args=[asked]):
            return _is_of_data(asked, function, analysis, depth, by_name=True)
        case ast.Name(id=name) if depth and name not in function.params:
            made = analysis.resolver.assigned(function).get(name, ())
            return len(made) == 1 and _is_amount(made[0], function, analysis, depth - 1)
        case _:
            return False


def _is_of_data(expr: ast.expr, function: Function, analysis: Analysis, depth: int, *, by_name: bool = False) -> bool:
    """It is computed from what the function is called with, and not from settings."""
    assigned = analysis.resolver.assigned(function)
    for name in names_in(expr) - {"self"}:
        if name in function.params:
            if not is_setting(name, function) and (not by_name or is_data_word(name)):
                return True
        elif depth and any(
            _is_of_data(v, function, analysis, depth - 1, by_name=by_name) for v in assigned.get(name, ())
        ):
            return True
    return False


# ---------------------------------------------------------------------------------------------------------------------
# Parts of a model.

_NO_PART = frozenset({
    *("loss", "losses", "criterion", "act", "activation", "relu", "gelu", "silu", "softmax", "sigmoid", "dropout", "drop", "pool"),
    *("processor", "tokenizer", "transform", "sampler", "coder", "assigner", "fn", "func", "function", "callback", "logger", "log"),
    *("config", "cfg", "metric", "metrics", "augment", "matcher", "scheduler", "timer", "hook", "rope", "generator", "reduce", "dtype"),
    *("extractor", "anchors", "roi", "entropy"),
})  # fmt: skip
"""First or last words of attributes that are called and have no parameters of their own."""
_WITHOUT_PARAMETERS = ("Loss", "ReLU", "GELU", "SiLU", "Dropout", "Identity", "Softmax", "Sigmoid", "Tanh", "Pool2d", "Pool1d", "Flatten",
                       "Upsample")  # fmt: skip


def _parts(block: Sequence[ast.stmt], function: Function, analysis: Analysis, depth: int = 1) -> Iterator[ast.Call]:
    for call in (n for s in block for n in ast.walk(s) if isinstance(n, ast.Call)):
        if _is_part(call.func, function, analysis):
            yield call
        elif depth and isinstance(call.func, ast.Attribute) and last_word(call.func.value) == "self":
            for callee in analysis.resolver.callees(call, function).functions[:1]:
                if not _only_predicts(callee) and any(True for _ in _parts(callee.body, callee, analysis, depth - 1)):
                    yield call


def _is_part(called: ast.expr, function: Function, analysis: Analysis) -> bool:
    while isinstance(called, ast.Subscript):
        called = called.value
    if isinstance(called, ast.Name):
        if called.id in function.params:
            return _is_passed_part(called.id, function, analysis)
        made = analysis.resolver.assigned(function).get(called.id, ())
        return (
            len(made) == 1
            and isinstance(made[0], ast.Attribute | ast.Subscript)
            and _is_part(made[0], function, analysis)
        )
    owner = function.owner
    if (
        owner is None
        or not isinstance(called, ast.Attribute)
        or not _is_self(called.value)
        or not _is_module(owner, analysis)
    ):
        return False
    words = called.attr.lower().strip("_").split("_")
    if {words[0], words[-1]} & _NO_PART or analysis.resolver.method(owner, called.attr) is not None:
        return False
    cls = analysis.resolver.class_of(called, function)
    if isinstance(cls, Class):
        return _is_module(cls, analysis)
    return cls is None or (not cls.endswith(_WITHOUT_PARAMETERS) and ".nn." in cls)


def _is_passed_part(name: str, function: Function, analysis: Analysis) -> bool:
    """`denoise(targets, self.class_embed)`."""
    for call, caller in analysis.resolver.call_sites(function):
        argument = argument_for(name, call, function)
        if isinstance(argument, ast.Attribute) and _is_part(argument, caller, analysis):
            return True
    return False


def _is_self(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Name) and expr.id == "self"


def _is_module(cls: Class, analysis: Analysis) -> bool:
    above = (base for base in analysis.resolver.ancestors(cls) if isinstance(base, str))
    return any(base.endswith("Module") or base.startswith("torch.nn.") for base in above)


RULE = LintRule(
    code=CODE,
    title="a part of the model runs only if the data needs it",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch
import torch.distributed as dist
from torch import nn

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask_head = nn.Linear(8, 8)

    def forward(self, features, rois):
        if rois.shape[0] == 0:
            return None
        return self.mask_head(features[rois])
""",
    silent_in="""\
import torch
import torch.distributed as dist
from torch import nn

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.mask_head = nn.Linear(8, 8)

    def forward(self, features, rois):
        if rois.shape[0] == 0:
            return self.mask_head(features[:1]).sum() * 0
        return self.mask_head(features[rois])
""",
)
