"""A collective on tensors whose size can differ by rank.

`all_gather`, `gather` and `all_reduce` need the same shape on all ranks. A batch padded to its own longest sequence, the
result of a mask, or an object as bytes differs in size: NCCL then hangs or corrupts memory, gloo raises.

Gather the sizes first and pad to the largest, or use `all_gather_object` for small objects.

On by default where the source shows that data decides the size (a mask, `nonzero`, `pickle.dumps`). Advisory where it only may, such as
the last batch of a loader.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin
from forkpoint.source.code import Function
from forkpoint.source.syntax import is_mask, last_word
from forkpoint.source.value import NO_REASONS, Reasons

CODE = "shape-differs"
_FIXED = frozenset({"all_gather", "all_gather_into_tensor", "gather", "all_reduce", "reduce_scatter_tensor",
                    "gather_for_metrics", "reduce", "all_gather_tensor"})  # fmt: skip
_SELECT = frozenset({"nonzero", "masked_select", "unique", "dumps"})
_CONVERTS = frozenset({"cuda", "to", "cpu", "contiguous", "long", "float", "tensor", "frombuffer", "from_buffer", "from_numpy", "as_tensor",
                       "ByteTensor", "bytearray", "list"})  # fmt: skip
"""As many elements come out as go in."""
_CONVERSIONS = 6
_PADDED = ("pad_across", "pad_to", "pad_tensor", "padded")


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communicating():
        for call in function.calls:
            api = analysis.communication.api(call, function)
            if api is None or api.op not in _FIXED:
                continue
            differing = {a: r for a in call.args[:2] if (r := _local_sizes(a, function, analysis))}
            selected = [a for a in differing if _is_selected_here(a, function, analysis, _CONVERSIONS)]
            if any(analysis.communication.reach(c, function) for c in function.calls if c.lineno < call.lineno):
                # Whoever gathers something before it usually gathers sizes, to pad.
                selected = [a for a in selected if not _is_padded(a, function, analysis)]
            for argument in [*selected, *differing][:1]:
                yield violation(
                    CODE,
                    f"{api.op} of a tensor whose size can differ by rank",
                    function,
                    call,
                    condition=argument,
                    reasons=differing[argument],
                    advisory=not selected,
                )


def _local_sizes(argument: ast.expr, function: Function, analysis: Analysis) -> Reasons:
    """Why data of this rank decides its size."""
    if any(word in function.module.source(argument) for word in _PADDED):
        return NO_REASONS
    extent = analysis.differences.argument(argument, function).extent
    return frozenset(r for r in extent if r.origin is Origin.LOCAL_DATA)


def _is_padded(argument: ast.expr, function: Function, analysis: Analysis) -> bool:
    made = analysis.resolver.assigned(function).get(argument.id, []) if isinstance(argument, ast.Name) else []
    return not any(isinstance(expr, ast.Subscript) for expr in made)


def _is_selected_here(expr: ast.expr, function: Function, analysis: Analysis, depth: int) -> bool:
    """It is what a mask selects or `nonzero` finds, or an object in bytes; here and not in another function where much can
    happen to it.
    """
    match expr:
        case ast.Subscript():
            return is_mask(expr.slice)
        case ast.Call() if last_word(expr) in _SELECT:
            return True
        case ast.Call() if last_word(expr) in _CONVERTS:
            made = [*expr.args[:1], *([expr.func.value] if isinstance(expr.func, ast.Attribute) else [])]
        case ast.Name():
            made = analysis.resolver.assigned(function).get(expr.id, [])
        case _:
            made = []
    return depth > 0 and any(_is_selected_here(part, function, analysis, depth - 1) for part in made)


RULE = LintRule(
    code=CODE,
    title="a fixed-shape collective gets a tensor whose size can differ by rank",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch.distributed as dist

def gather_kept(out, values, mask):
    kept = values[mask.bool()]
    dist.all_gather(out, kept)
""",
    silent_in="""\
import torch.distributed as dist

def gather_kept(out, values, mask):
    kept = values * mask
    dist.all_gather(out, kept)
""",
)
