"""How good a model is: recorded cases whose truth is known, and what it says of each, beside what the engine says alone.

    read_known -> KnownCase --evaluate(model)--> Run --total--> Totals --tables-->

A model is shown a copy that bears no number, and no story of that case or of another run of the same fault.
"""

from forkpoint.agent.evaluation.known import KnownCase, read_known
from forkpoint.agent.evaluation.run import EndpointGone, Plan, Run, Totals, evaluate, total

__all__ = ["EndpointGone", "KnownCase", "Plan", "Run", "Totals", "evaluate", "read_known", "total"]
