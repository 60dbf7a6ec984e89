"""A check that raises, made on some ranks only.

`if rank == 0: if exists(path): raise`: rank 0 ends, and the others wait for it in the next collective until the timeout.
Their error hides the real one.

Make the check on one rank, broadcast its outcome, and raise everywhere.

Also an output that each rank looks for by itself (`if path.exists(): raise FileExistsError(path)`): another rank may have made it in the
meantime, or it is on one node only.

Not reported: checks that all ranks make, checks after which nothing communicates, and errors that speak of a wrong
configuration (ValueError, NotImplementedError), which end the job at its start.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import guard_by_rank, relate, violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind, Origin, Strength
from forkpoint.source.branches import Branch, CommStep, name_step
from forkpoint.source.syntax import last_word, own_nodes

CODE = "raise-on-some-ranks"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communicating():
        for branch in analysis.branches.of(function):
            step = next((s for s in branch.after if s.reach.api.kind is ApiKind.COLLECTIVE), None)
            if step is not None:
                yield from _by_own_look(branch, step, analysis)
            raised = _raised(branch) or _raised_in_callee(branch, analysis)
            if step is None or raised is None:
                continue
            reasons = analysis.differences.test(branch.test, function).reasons
            reasons = frozenset(r for r in reasons if r.origin is Origin.RANK and r.strength is Strength.CERTAIN)
            if reasons:
                yield violation(
                    CODE,
                    f"only some ranks make this check and can raise; the others go on to {name_step(step)}",
                    function,
                    raised,
                    condition=branch.test,
                    reasons=reasons,
                    related=relate(step, function, analysis),
                )


def _refuses_existing(branch: Branch) -> ast.Raise | None:
    """`if path.exists(): raise FileExistsError(path)`."""
    last = branch.arms[0].statements[-1:] if branch.arms[0].leaves == "raise" else ()
    return next((s for s in last if isinstance(s, ast.Raise) and s.exc and last_word(s.exc) == "FileExistsError"), None)


def _by_own_look(branch: Branch, step: CommStep, analysis: Analysis) -> Iterator[Violation]:
    raised = _refuses_existing(branch)
    if raised is None or not isinstance(raised.exc, ast.Call):
        return
    reasons = analysis.differences.test(branch.test, branch.function).reasons
    # On one rank only, it is a check that only some ranks make.
    on_one_rank = guard_by_rank(raised.exc, branch.function, analysis, or_before=True) is not None
    if not on_one_rank and any(r.origin is Origin.FILES for r in reasons):
        yield violation(
            CODE,
            f"each rank looks by itself whether this exists, and a rank that finds it raises; the others go on to {name_step(step)}",
            branch.function,
            raised,
            condition=branch.test,
            reasons=frozenset(r for r in reasons if r.origin is Origin.FILES),
            related=relate(step, branch.function, analysis),
        )


def _raised(branch: Branch) -> ast.Raise | None:
    """A `raise` under another condition; a `raise` directly in the arm is a plain refusal to run."""
    together = isinstance(branch.test, ast.BoolOp) and isinstance(branch.test.op, ast.And)
    for arm in branch.arms:
        for statement in arm.statements:
            # `if rank == 0 and exists(path): raise` is such a check in one condition.
            if isinstance(statement, ast.If) or (together and arm is branch.arms[0]):
                for inner in ast.walk(statement):
                    if isinstance(inner, ast.Raise) and inner.exc is not None and not _is_refusal(inner.exc):
                        return inner
    return None


_OF_FILES = frozenset({"FileExistsError", "FileNotFoundError", "OSError", "IOError", "PermissionError", "TimeoutError",
                       "ConnectionError"})  # fmt: skip
"""Raised for what one machine finds, not for how the job was started."""


def _raised_in_callee(branch: Branch, analysis: Analysis) -> ast.Call | None:
    """`if rank == 0: prepare(path)`, which raises if the file is there."""
    for arm in branch.arms:
        for call in (n for statement in arm.statements for n in ast.walk(statement) if isinstance(n, ast.Call)):
            callees = analysis.resolver.callees(call, branch.function)
            raised = (n for f in callees.functions for n in own_nodes(f.node) if isinstance(n, ast.Raise) and n.exc)
            if callees.exact and any(last_word(n.exc) in _OF_FILES for n in raised if n.exc is not None):
                return call
    return None


def _is_refusal(raised: ast.expr) -> bool:
    """Of the configuration, which is the same for all ranks and wrong from the start."""
    return last_word(raised) in {"NotImplementedError", "ValueError", "TypeError", "AssertionError", "KeyError"}


RULE = LintRule(
    code=CODE,
    title="a check that raises on some ranks only",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import os
import torch.distributed as dist

def save(path):
    if dist.get_rank() == 0:
        if os.path.exists(path):
            raise FileExistsError(path)
    dist.barrier()
""",
    silent_in="""\
import os
import torch.distributed as dist

def save(path):
    found = [os.path.exists(path)]
    dist.broadcast_object_list(found, src=0)
    if found[0]:
        raise FileExistsError(path)
    if dist.get_rank() == 0:
        os.makedirs(path)
    dist.barrier()
""",
)
