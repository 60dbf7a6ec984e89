"""A collective in `except` or `finally`.

Only the rank that failed runs the handler; the others are elsewhere. In `finally` the failing rank reaches the
collective too early: it is matched with another collective, or a timeout hides the real error. Destroying the process
group in `finally` waits for ranks that are waiting for this one.

Let the rank fail, and let the launcher end the others.

Not reported: `finally` that closes local things only.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import relate, violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import ApiKind
from forkpoint.source.branches import name_step
from forkpoint.source.syntax import tries

CODE = "collective-in-handler"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.communicating():
        for node in tries(function):
            places: list[tuple[str, list[ast.stmt], ast.stmt | ast.ExceptHandler]]
            places = [("except", h.body, h) for h in node.handlers]
            if node.finalbody:
                places.append(("finally", node.finalbody, node.finalbody[0]))
            for word, body, at in places:
                steps = [s for s in analysis.branches.steps(body, function) if s.reach.api.kind is not ApiKind.SETUP]
                if steps:
                    yield violation(
                        CODE,
                        f"{name_step(steps[0])} in `{word}`: a rank that fails reaches it while the others are elsewhere",
                        function,
                        at,
                        related=relate(steps[0], function, analysis),
                    )


RULE = LintRule(
    code=CODE,
    title="a collective in except or finally",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
import torch.distributed as dist

def main(train):
    try:
        train()
        dist.barrier()
    finally:
        dist.destroy_process_group()
""",
    silent_in="""\
import torch.distributed as dist

def main(train, log):
    try:
        train()
        dist.barrier()
    finally:
        log.close()
    dist.destroy_process_group()
""",
)
