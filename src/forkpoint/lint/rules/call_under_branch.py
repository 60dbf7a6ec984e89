"""A branch that can differ by rank, with a call on one side that leads to a collective.

The call looks harmless (reading a metric, saving a checkpoint, a log line), and the collective is in another function
or file. Only some ranks reach it, and wait for the others.

A callback that is registered on one rank runs there only: a method of it that communicates is reported where it is added.

Call it on all ranks and use the result on one, or make the decision equal first.

Not reported: what `collective-under-branch` does not report.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import (
    guard_by_rank,
    only_on_one_rank,
    relate,
    unequal_branches,
    unequal_violation,
    violation,
)
from forkpoint.lint.rule import LintRule, Related, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind, is_rank_word
from forkpoint.source.branches import name_step
from forkpoint.source.code import Class, Function
from forkpoint.source.syntax import ancestors, called_name, guards, names_and_attributes_in
from forkpoint.source.value import Reasons

CODE = "call-under-branch"
_REGISTERS = frozenset(
    {"append", "add", "insert", "register", "add_callback", "add_hook", "register_hook", "register_callback"}
)


def _find(analysis: Analysis) -> Iterator[Violation]:
    for unequal in unequal_branches(analysis):
        step = unequal.steps[0]
        if unequal.leaves is not None or step.reach.through is None or step.reach.api.kind is ApiKind.SETUP:
            continue
        message = f"{name_step(step)}, is called on one side of a branch that ranks can take differently"
        yield unequal_violation(CODE, message, unequal, analysis)
    for function, step in only_on_one_rank(analysis):
        if step.reach.through is not None:
            message = f"{name_step(step)} in a function that its decorator runs on one rank only"
            yield violation(CODE, message, function, step.call, related=relate(step, function, analysis))
    for function in analysis.program.functions():
        yield from _through_interface(function, analysis)
        yield from _registered(function, analysis)


def _through_interface(function: Function, analysis: Analysis) -> Iterator[Violation]:
    """A method that several classes implement, called on one rank: with one of them it communicates."""
    communication = analysis.communication
    for call in function.calls:
        reach = communication.doubtful_reach(call, function)
        guard = guard_by_rank(call, function, analysis, or_before=True) if reach is not None else None
        if reach is None or guard is None or not _names_a_rank(guard, function):
            continue
        if not _is_called_by_others(call, guard[0], function):
            path = communication.path(reach)
            last, at = path[-1]
            leads = f"{path[0][0].name}(), which leads to {reach.api.op}"
            message = f"{leads}, may be what this runs, on some ranks only"
            place = Related(last.module.path, at.lineno, f"{reach.api.op} in {last.name}")
            yield violation(CODE, message, function, call, condition=guard[0], reasons=guard[1], related=(place,))


def _names_a_rank(guard: tuple[ast.expr, Reasons], function: Function) -> bool:
    """The condition itself asks which rank this is, so that there is no doubt about it as well."""
    asked = function.module.source(guard[0])
    named = any(is_rank_word(n) for n in names_and_attributes_in(guard[0]))
    return named or any(r.expression in asked for r in guard[1])


def _registered(function: Function, analysis: Analysis) -> Iterator[Violation]:
    """`if rank == 0: callbacks.append(Saver())`: whoever runs the callbacks runs this one on some ranks only."""
    for call in function.calls:
        if called_name(call.func) not in _REGISTERS or not call.args or not isinstance(call.args[0], ast.Call):
            continue
        cls = analysis.resolver.definition(call.args[0].func, function)
        hook = _communicating_hook(cls, analysis) if isinstance(cls, Class) else None
        guard = guard_by_rank(call, function, analysis) if hook is not None else None
        if hook is not None and guard is not None:
            reach = analysis.communication.reaches[hook]
            message = f"{hook.name}(), which leads to {reach.api.op}, is registered on some ranks only"
            place = Related(hook.module.path, reach.call.lineno, f"{hook.name} leads to {reach.api.op}")
            yield violation(CODE, message, function, call, condition=guard[0], reasons=guard[1], related=(place,))


def _communicating_hook(cls: Class, analysis: Analysis) -> Function | None:
    """A method that communicates and that a base class has, too, so that others call it without knowing the class."""
    bases = analysis.resolver.bases(cls)
    for name, method in cls.methods.items():
        reach = analysis.communication.reaches.get(method)
        inherited = any(isinstance(b, Class) and analysis.resolver.method(b, name) for b in bases)
        if reach is not None and reach.api.kind is ApiKind.COLLECTIVE and inherited and not name.startswith("__"):
            return method
    return None


def _is_called_by_others(call: ast.Call, test: ast.expr, function: Function) -> bool:
    """The other side of the branch calls the same method."""
    branch = next(outer for outer, _ in ancestors(test, function) if isinstance(outer, ast.If | ast.IfExp | ast.BoolOp))
    name = called_name(call.func)
    calls = [n for n in ast.walk(branch) if isinstance(n, ast.Call) and called_name(n.func) == name]
    return any((test, False) in guards(c, function) for c in calls) and any(
        (test, True) in guards(c, function) for c in calls
    )


RULE = LintRule(
    code=CODE,
    title="a call that leads to a collective is made on some ranks only",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch.distributed as dist

class Mean:
    def read(self):
        dist.all_reduce(self.total)
        return self.total

def report(step, mean: Mean):
    if dist.get_rank() == 0:
        print(step, mean.read())
""",
    silent_in="""\
import torch.distributed as dist

class Mean:
    def read(self):
        dist.all_reduce(self.total)
        return self.total

def report(step, mean: Mean):
    value = mean.read()
    if dist.get_rank() == 0:
        print(step, value)
""",
)
