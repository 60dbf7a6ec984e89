"""An exception is caught and ignored around code that communicates.

Out of memory, a corrupt sample or a full disk happens on one rank. That rank skips the rest of the `try` block and
continues; the others wait in the collective that it skipped.

Let it fail, or agree on what happened: catch it around the local part only, reduce a flag, and skip on all ranks.

The same holds for a handler that leaves by `return`, `continue` or `break` before a collective that follows.

Not reported: handlers that always raise or exit, also through a function that does nothing else, and `try` blocks with
nothing before the collective that could fail on one rank only.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import relate, violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.branches import CommStep, name_step
from forkpoint.source.code import Function
from forkpoint.source.syntax import is_raised_on_all_ranks, tries

CODE = "exception-swallowed"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communicating():
        yield from _skips(function, analysis)
        yield from _leaves(function, analysis)


def _skips(function: Function, analysis: Analysis) -> Iterator[Violation]:
    """A handler after which the rank goes on without a collective of the `try` block."""
    for node in tries(function):
        steps = [s for s in analysis.branches.steps(node.body, function) if not _is_setup(s)]
        if not steps:
            continue
        for handler in node.handlers:
            if is_raised_on_all_ranks(handler) or _ends_rank(handler, function, analysis):
                continue
            yield violation(
                CODE,
                f"a rank that catches {_caught(handler)} here continues without {name_step(steps[-1])}, and the others wait in it",
                function,
                handler,
                related=relate(steps[-1], function, analysis),
                advisory=not _can_fail_first(node, steps),
            )


def _leaves(function: Function, analysis: Analysis) -> Iterator[Violation]:
    """A handler by which the rank leaves before a collective that follows the `try` block."""
    for caught in analysis.branches.caught_exits(function):
        steps = [s for s in caught.left_out if not _is_setup(s)]
        inside = any(not _is_setup(s) for s in analysis.branches.steps(caught.node.body, function))
        # With a collective inside the block, the handler has been reported for it.
        if not steps or inside or is_raised_on_all_ranks(caught.handler) or not _has_call(caught.node):
            continue
        yield violation(
            CODE,
            f"a rank that catches {_caught(caught.handler)} here takes the `{caught.leaves}` while the others go on to"
            f" {name_step(steps[0])}",
            function,
            caught.handler,
            related=relate(steps[0], function, analysis),
        )


def _caught(handler: ast.ExceptHandler) -> str:
    return ast.unparse(handler.type) if handler.type is not None else "any exception"


def _has_call(node: ast.Try | ast.TryStar) -> bool:
    return any(isinstance(inner, ast.Call) for s in node.body for inner in ast.walk(s))


def _is_setup(step: CommStep) -> bool:
    return step.reach.api.kind in {"setup", "teardown"}


def _ends_rank(handler: ast.ExceptHandler, function: Function, analysis: Analysis) -> bool:
    """It raises, exits or aborts, on each path."""
    return analysis.resolver.exit_of(handler.body, function) == "raise"


def _can_fail_first(node: ast.Try, steps: list[CommStep]) -> bool:
    """There is a call before the last collective of the block, so a rank can fail before that collective."""
    calls = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Call)]
    last = steps[-1].call
    arguments = (*last.args, *(k.value for k in last.keywords))
    inside = {id(last), *(id(n) for a in arguments for n in ast.walk(a))}
    return steps[-1].reach.through is not None or any(c.lineno <= last.lineno and id(c) not in inside for c in calls)


RULE = LintRule(
    code=CODE,
    title="an exception is ignored around code that communicates",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch.distributed as dist

def train(loader, model):
    for batch in loader:
        try:
            loss = model(batch)
            loss.backward()
        except RuntimeError as error:
            print("skipped", error)
""",
    silent_in="""\
import torch.distributed as dist

def train(loader, model):
    for batch in loader:
        try:
            loss = model(batch)
            loss.backward()
        except RuntimeError as error:
            print("stopped", error)
            raise
""",
)
