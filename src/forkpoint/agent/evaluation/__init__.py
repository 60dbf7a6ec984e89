"""Measures a model on recorded cases with a known truth, and compares it with the engine alone.

    read_known -> KnownCase --evaluate(model)--> Run --total--> Totals --tables-->

The model sees a copy of the case without its number, and no past case of the same fault.
"""

from forkpoint.agent.evaluation.known import KnownCase, read_known
from forkpoint.agent.evaluation.run import EndpointGone, EvaluationTotals, Plan, Run, evaluate, total

__all__ = ["EndpointGone", "EvaluationTotals", "KnownCase", "Plan", "Run", "evaluate", "read_known", "total"]
