"""A collective on tensors whose size can differ by rank.

`all_gather`, `gather` and `all_reduce` need the same shape on all ranks. A batch padded to its own longest sequence, or
the result of a mask, differs in size: NCCL then hangs or corrupts memory, gloo raises.

Gather the sizes first and pad to the largest, or use `all_gather_object` for small objects.

On by default where the source shows that data decides the size (a mask, `nonzero`). Advisory where it only may, such as
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

CODE = "shape-differs"
_FIXED = frozenset({"all_gather", "all_gather_into_tensor", "gather", "all_reduce", "reduce_scatter_tensor",
                    "gather_for_metrics", "reduce", "all_gather_tensor"})  # fmt: skip
_SELECT = frozenset({"nonzero", "masked_select", "unique"})
_PADDED = ("pad_across", "pad_to", "pad_tensor", "padded")


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communicating():
        for call in function.calls:
            api = analysis.communication.api(call, function)
            if api is None or api.op not in _FIXED:
                continue
            for argument in call.args[:2]:
                text = function.module.source(argument)
                extent = analysis.differences.argument(argument, function).extent
                reasons = frozenset(r for r in extent if r.origin is Origin.LOCAL_DATA)
                if reasons and not any(word in text for word in _PADDED):
                    yield violation(
                        CODE,
                        f"{api.op} of a tensor whose size can differ by rank",
                        function,
                        call,
                        condition=argument,
                        reasons=reasons,
                        advisory=not _is_selected_here(argument, function, analysis),
                    )
                    break


def _is_selected_here(argument: ast.expr, function: Function, analysis: Analysis) -> bool:
    """It is what a mask selects or `nonzero` finds, here and not in another function where much can happen to it."""
    made = analysis.resolver.assigned(function).get(argument.id, []) if isinstance(argument, ast.Name) else [argument]
    return any(
        (isinstance(expr, ast.Subscript) and is_mask(expr.slice))
        or (isinstance(expr, ast.Call) and last_word(expr) in _SELECT)
        for expr in made
    )


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
