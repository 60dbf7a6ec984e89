"""A process group with a short timeout, and work on one rank that the others wait for.

While one rank downloads, tokenises, compiles or saves, the others wait in the next collective, and its timeout runs.
With a timeout of a minute, a slow disk ends the job although all ranks are fine.

Wait in a separate group with a longer timeout, or do the work before the group exists.

Advisory: the source does not show how long work takes.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import violation
from forkpoint.lint.rule import LintRule, Related, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin
from forkpoint.source.code import Function
from forkpoint.source.syntax import last_word

CODE = "timeout-shorter-than-work"
_DEFAULT = 600
"""Seconds: the default of NCCL groups."""
_UNITS = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86400, "milliseconds": 0.001}
_SLOW = ("save", "download", "tokenize", "from_pretrained", "load_dataset", "prepare", "export", "evaluate", "upload",
         "preprocess", "build_index")  # fmt: skip


def _find(analysis: Analysis) -> Iterator[Violation]:
    short = next(_short_timeouts(analysis), None)
    if short is None:
        return
    at, seconds = short
    for function in analysis.communicating():
        for branch in analysis.branches.of(function):
            reasons = analysis.differences.test(branch.test, function).reasons
            if not any(r.origin is Origin.RANK for r in reasons) or branch.arms[0].steps or not branch.after:
                continue
            slow = next((c for s in branch.arms[0].statements for c in _slow_calls(s)), None)
            if slow is not None:
                yield violation(
                    CODE,
                    f"{last_word(slow)} runs on some ranks while the others wait in a group with a timeout of {seconds:g} s",
                    function,
                    branch.node,
                    condition=branch.test,
                    related=(at,),
                    advisory=True,
                )


def _short_timeouts(analysis: Analysis) -> Iterator[tuple[Related, float]]:
    for function in analysis.communicating():
        for call in function.calls:
            api = analysis.communication.api(call, function)
            if api is None or api.op not in {"init_process_group", "new_group"}:
                continue
            seconds = next((_seconds(k.value) for k in call.keywords if k.arg == "timeout"), None)
            if seconds is not None and seconds < _DEFAULT:
                yield _at(function, call), seconds


def _at(function: Function, call: ast.Call) -> Related:
    return Related(function.module.path, call.lineno, "the timeout is set here")


def _seconds(expr: ast.expr) -> float | None:
    """60 for `timedelta(seconds=60)`; None unless all numbers are literals."""
    if not isinstance(expr, ast.Call) or last_word(expr) != "timedelta" or expr.args:
        return None
    total = 0.0
    for keyword in expr.keywords:
        number = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
        if keyword.arg not in _UNITS or not isinstance(number, int | float):
            return None
        total += _UNITS[keyword.arg] * number
    return total


def _slow_calls(statement: ast.stmt) -> Iterator[ast.Call]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Call) and last_word(node).startswith(_SLOW):
            yield node


RULE = LintRule(
    code=CODE,
    title="work on one rank may take longer than the timeout of the others",
    find=_find,
    advisory=True,
    doc=str(__doc__),
    found_in="""\
from datetime import timedelta
import torch.distributed as dist

def main(model):
    dist.init_process_group(timeout=timedelta(seconds=60))
    if dist.get_rank() == 0:
        model.save_pretrained("out")
    dist.barrier()
""",
    silent_in="""\
from datetime import timedelta
import torch.distributed as dist

def main(model):
    dist.init_process_group(timeout=timedelta(hours=2))
    if dist.get_rank() == 0:
        model.save_pretrained("out")
    dist.barrier()
""",
)
