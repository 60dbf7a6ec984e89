"""A trainer's stop flag is set from a value that can differ by rank.

`trainer.should_stop = True` on one rank ends the loop there; the others wait in the next step. A barrier afterwards
synchronises the ranks, but not the value.

Reduce the decision first: `trainer.strategy.reduce_boolean_decision(stop)`, or `all_reduce` on the flag.

Not reported: flags set from the result of a collective, or from configuration.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.decisions import violation
from forkpoint.lint.rule import LintRule, Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin, Strength, is_stop_flag
from forkpoint.source.code import Function
from forkpoint.source.value import strength_of

CODE = "stop-flag-differs"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.program.functions():
        if not any(is_stop_flag(name) for name in _written(function)):
            continue
        writes = analysis.differences.facts(function).writes
        agreed = _agreed(function, analysis)
        for target, value in writes:
            # Set locally, but made equal before the function ends.
            if not is_stop_flag(target.attr) or agreed.get(target.attr, 0) > target.lineno:
                continue
            reasons = analysis.differences.settled(value, function).reasons
            reasons = frozenset(r for r in reasons if r.origin is not Origin.ORDER)
            if reasons:
                yield violation(
                    CODE,
                    f"`{target.attr}` is set from a value that can differ by rank: one rank stops, the others go on",
                    function,
                    target,
                    reasons=reasons,
                    advisory=strength_of(reasons) is Strength.POSSIBLE,
                )


def _agreed(function: Function, analysis: Analysis) -> dict[str, int]:
    """Flag -> the last line that sets it to the result of a collective, here or in a callee."""
    lines: dict[str, int] = {}
    for target, value in analysis.differences.facts(function).writes:
        if value.made:
            lines[target.attr] = max(target.lineno, lines.get(target.attr, 0))
    for call in function.calls:
        for callee in analysis.resolver.callees(call, function).functions:
            for target, value in analysis.differences.facts(callee).writes:
                if value.made:
                    lines[target.attr] = max(call.lineno, lines.get(target.attr, 0))
    return lines


def _written(function: Function) -> Iterator[str]:
    for node in function.own.assignments:
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Attribute):
                yield target.attr


RULE = LintRule(
    code=CODE,
    title="a trainer's stop flag is set from a value that can differ by rank",
    find=_find,
    advisory=False,
    doc=str(__doc__),
    found_in="""\
class Stopper:
    def on_batch_end(self, trainer):
        if trainer.is_global_zero and self.asked_to_stop():
            trainer.should_stop = True
""",
    silent_in="""\
class Stopper:
    def on_batch_end(self, trainer):
        asked = trainer.is_global_zero and self.asked_to_stop()
        trainer.should_stop = trainer.strategy.reduce_boolean_decision(asked, all=False)
""",
)
