"""A `return`, `continue` or `break` that some ranks can take before a collective that the others call.

A batch skipped because of a NaN, a loop that one rank leaves because its own metric stopped improving, an early return
because this rank has nothing to do: the rank is gone when the others call the collective.

Reduce the flag over all ranks before acting on it.

Also a loop that calls a sharded model (ZeRO-3, FSDP) and ends when this rank's own samples are finished: each call gathers weights from all
ranks. Let all ranks make as many rounds as the slowest one.

Not reported: conditions that are equal on all ranks (constants, configuration, results of a collective), exits after
which nothing communicates, and `raise`.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import unequal_branches, unequal_violation, violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.branches import name_step
from forkpoint.source.code import Function
from forkpoint.source.flow import exit_of
from forkpoint.source.syntax import branches_and_loops, called_name, last_word

CODE = "exit-before-collective"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for unequal in unequal_branches(analysis):
        if unequal.leaves is None:
            continue
        step = unequal.steps[0]
        message = f"some ranks can `{unequal.leaves}` here while the others go on to {name_step(step)}"
        yield unequal_violation(CODE, message, unequal, analysis)
    for function in analysis.program.functions():
        if any(name.startswith(_SHARDS) for name in function.module.imports.values()):
            yield from _when_finished(function, analysis)


_SHARDS = ("deepspeed", "torch.distributed.fsdp", "torch.distributed._composable.fsdp")
_MODELS = frozenset(
    {"self", "model", "module", "base_model", "forward", "transformer", "policy", "actor", "wrapped_model"}
)


def _when_finished(function: Function, analysis: Analysis) -> Iterator[Violation]:
    """`for _ in range(limit): out = self(ids)` ... `if torch.all(finished): break`."""
    for loop in branches_and_loops(function):
        if not isinstance(loop, ast.For | ast.While) or analysis.branches.steps(loop.body, function):
            continue
        calls = [n for s in loop.body for n in ast.walk(s) if isinstance(n, ast.Call)]
        runs = next((c for c in calls if called_name(c.func) in _MODELS), None)
        leaves = (s for s in loop.body if isinstance(s, ast.If) and exit_of(s.body) in {"break", "return"})
        for branch in leaves if runs is not None else ():
            if _asks_for_all(branch.test) and not analysis.differences.test(branch.test, function).made:
                yield violation(
                    CODE,
                    "a rank whose own samples are finished leaves the loop here; the others call the model again, which gathers weights from"
                    " all ranks if it is sharded",
                    function,
                    branch.body[-1],
                    condition=branch.test,
                )


def _asks_for_all(test: ast.expr) -> bool:
    """`torch.all(finished)`, `finished.all()`; `not synced_gpus and finished.all()` knows of sharded models."""
    return not isinstance(test, ast.BoolOp) and any(
        isinstance(n, ast.Call) and last_word(n.func) == "all" and isinstance(n.func, ast.Attribute)
        for n in ast.walk(test)
    )


RULE = LintRule(
    code=CODE,
    title="some ranks can leave before a collective",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch
import torch.distributed as dist

def train(loader, model):
    for batch in loader:
        loss = model(batch)
        if torch.isnan(loss):
            continue
        loss.backward()
""",
    silent_in="""\
import torch
import torch.distributed as dist

def train(loader, model):
    for batch in loader:
        loss = model(batch)
        bad = torch.isnan(loss).float()
        dist.all_reduce(bad)
        if bad > 0:
            continue
        loss.backward()
""",
)
