"""A hypothesis -> what the engine says to each of its claims."""

from dataclasses import dataclass

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Ledger
from forkpoint.agent.hypothesis import CheckedClaim, Hypothesis
from forkpoint.report.escape import escape

MAX_CLAIMS = 40
_CITED = 5
_MAX_ID = 20


@dataclass(frozen=True, slots=True)
class Checked:
    claims: tuple[CheckedClaim, ...]
    refused: tuple[str, ...]
    """Claims that were not checked, and why."""


def check_claims(case: Case, ledger: Ledger, hypothesis: Hypothesis) -> Checked:
    """Claims that cite what was never shown are turned away: who makes up evidence is not asked about the rest."""
    known = frozenset(ledger.ids)
    claims: list[CheckedClaim] = []
    refused: list[str] = []
    for number, claim in enumerate(hypothesis.claims[:MAX_CLAIMS], start=1):
        never_shown = sorted(set(claim.evidence) - known)
        if never_shown:
            cited = ", ".join(escape(one[:_MAX_ID]) for one in never_shown[:_CITED])
            refused.append(f"claim {number} was not checked: it cites {cited}, which was never shown")
        else:
            claims.append(CheckedClaim(claim, claim.check(case)))
    if len(hypothesis.claims) > MAX_CLAIMS:
        refused.append(f"{len(hypothesis.claims) - MAX_CLAIMS} claims beyond the first {MAX_CLAIMS} were not checked")
    return Checked(tuple(claims), tuple(refused))
