"""A part of the model that runs only if this rank's data needs it.

Under DDP, FSDP and ZeRO each part of the model communicates when it runs forward or backward. A vision tower that a
text-only batch skips, an expert without tokens, a head without targets: that rank makes fewer calls than the others.

Run the part on all ranks; where there is nothing to do, use a dummy input and multiply the result by zero.

Advisory: the source shows neither whether the data differs in this respect nor how the model is wrapped.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import is_data_word
from forkpoint.source.code import Function
from forkpoint.source.syntax import last_word, names_in, own_nodes

CODE = "module-skipped-by-data"
_PARTS = ("visual", "vision_tower", "vision_model", "audio_tower", "image_encoder", "encoder", "projector", "expert",
          "experts", "mask_head", "vision_encoder", "audio_encoder")  # fmt: skip


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.program.functions():
        for node in own_nodes(function.node):
            if not isinstance(node, ast.If) or not _asks_for_data(node.test, function):
                continue
            part = next((p for s in node.body for p in _parts(s, function, analysis)), None)
            other = any(True for s in node.orelse for _ in _parts(s, function, analysis))
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


def _parts(statement: ast.stmt, function: Function, analysis: Analysis) -> Iterator[ast.Call]:
    for node in ast.walk(statement):
        is_part = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _PARTS
        if is_part and isinstance(node, ast.Call) and analysis.resolver.dotted(node.func, function) is None:
            yield node


RULE = LintRule(
    code=CODE,
    title="a part of the model runs only if the data needs it",
    find=_find,
    advisory=True,
    doc=str(__doc__),
    found_in="""\
def embed(model, input_ids, pixel_values=None):
    x = model.embed(input_ids)
    if pixel_values is not None:
        x = x + model.visual(pixel_values)
    return x
""",
    silent_in="""\
def embed(model, input_ids, pixel_values=None):
    x = model.embed(input_ids)
    if pixel_values is not None:
        x = x + model.visual(pixel_values)
    else:
        x = x + 0 * model.visual(model.blank).mean()
    return x
""",
)
