"""A trainer's stop flag that is set from something local.

`trainer.should_stop = True` on one rank ends the loop there; the others wait in the next step. A barrier afterwards
brings the ranks together, but does not carry the value over.

Reduce the decision first: `trainer.strategy.reduce_boolean_decision(stop)`, or `all_reduce` on the flag.

Left alone: flags set from values that a collective made equal, or from configuration.
"""

import ast
from collections.abc import Iterator

from forkpoint.lint.describe import violation
from forkpoint.lint.rule import Rule
from forkpoint.lint.violation import Violation
from forkpoint.source.analysis import Analysis
from forkpoint.source.apis import Origin, Strength
from forkpoint.source.code import Function
from forkpoint.source.value import strength_of
from forkpoint.source.words import is_stop_flag

CODE = "stop-flag-differs"


def _find(analysis: Analysis) -> Iterator[Violation]:
    for function in analysis.program.functions():
        if not any(is_stop_flag(name) for name in _written(function)):
            continue
        writes = analysis.differences.facts(function).writes
        agreed = _agreed(function, analysis)
        for target, value in writes:
            # Set locally, and made equal before the function ends.
            if not is_stop_flag(target.attr) or agreed.get(target.attr, 0) > target.lineno:
                continue
            reasons = analysis.differences.settled(value, function).reasons
            reasons = frozenset(r for r in reasons if r.origin is not Origin.ORDER)
            if reasons:
                yield violation(
                    CODE,
                    f"`{target.attr}` is set from something that can differ by rank: this rank stops, the others go on",
                    function,
                    target,
                    reasons=reasons,
                    advisory=strength_of(reasons) is Strength.POSSIBLE,
                )


def _agreed(function: Function, analysis: Analysis) -> dict[str, int]:
    """The last line on which a flag is set to something made equal, here or in what is called."""
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


RULE = Rule(
    code=CODE,
    title="a trainer's stop flag is set from something local",
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
