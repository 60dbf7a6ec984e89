"""Verdict -> what a scheduler should do. A pure function, and the only place where that is chosen.

Doubt never stops a job: a retry that was not needed costs minutes and is bounded, a job that was wrongly stopped waits for
a person. So 93 needs a verdict that is likely, 76 a node that is known, and all else is left to those who run the job.
"""

from collections.abc import Mapping

from forkpoint.detectors.confidence import LIKELY
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Action, Cause, Verdict
from forkpoint.run.decision import DO_NOT_RETRY, RETRY, RETRY_ELSEWHERE, Decision

_MAY_PASS = (
    Action.REPLACE_OR_RETRY,
    Action.FIX_CODE_OR_STORAGE,
    Action.FIX_CODE_OR_HARDWARE,
    Action.RAISE_TIMEOUT,
)
"""What another attempt can get past. If it does not, `retries` stops it."""


def decide(verdict: Verdict, child_code: int, nodes: Mapping[int, str]) -> Decision:
    """`nodes`: where ranks ran, as far as that is known. `child_code` is what stands where the evidence does not decide."""
    if verdict.cause in (Cause.INCONCLUSIVE, Cause.HEALTHY):
        return Decision(child_code, f"the evidence does not decide ({verdict.cause}): your own policy holds")
    if verdict.confidence < LIKELY:
        return Decision(child_code, f"{verdict.cause} is not sure enough to act on: your own policy holds")
    if verdict.action is Action.FIX_CODE:
        return Decision(DO_NOT_RETRY, f"{verdict.cause}: the same code would fail again")
    if verdict.action is Action.REPLACE_NODE:
        return _leave_out(verdict, nodes)
    if verdict.action in _MAY_PASS:
        return Decision(RETRY, f"{verdict.cause} ({verdict.action}): another attempt may pass")
    return Decision(child_code, f"{verdict.cause} ({verdict.action}): a person has to look, your own policy holds")


def _leave_out(verdict: Verdict, nodes: Mapping[int, str]) -> Decision:
    """All of the suspects' nodes must be known: leaving out one of two would meet the other again."""
    suspects = verdict.suspects
    if not suspects or any(rank not in nodes for rank in suspects):
        return Decision(RETRY, f"{verdict.cause}: a node is at fault, but it is not known which: look before you retry")
    named = tuple(sorted({nodes[rank] for rank in suspects}))
    return Decision(RETRY_ELSEWHERE, f"{verdict.cause}: {name_ranks(suspects)} ran on {', '.join(named)}", named)
