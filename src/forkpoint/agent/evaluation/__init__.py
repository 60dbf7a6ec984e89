"""How good a model is: recorded cases whose truth is known, and what it says of each, beside what the engine says alone."""

from forkpoint.agent.evaluation.known import KnownCase, read_known
from forkpoint.agent.evaluation.run import Plan, Run, Totals, Unanswered, evaluate, total

__all__ = ["KnownCase", "Plan", "Run", "Totals", "Unanswered", "evaluate", "read_known", "total"]
