"""A peer's hypothesis: every claim is checked again, and the verdict stands beside it as it was."""

from forkpoint.agent.checking import check_claims
from forkpoint.agent.hypothesis import CheckedClaim, Hypothesis
from forkpoint.agent.mcp.answers import Answer, ClaimOut, HypothesisOut, facts_out
from forkpoint.agent.mcp.cleaned import verdict_in_short
from forkpoint.agent.mcp.desk import Opened


def submit(opened: Opened, hypothesis: Hypothesis) -> Answer:
    checked = check_claims(opened.case, opened.ledger, hypothesis)
    return Answer.of(
        HypothesisOut(
            claims=[_told(opened, claim) for claim in checked.claims],
            turned_away=list(checked.refused),
            verdict=verdict_in_short(opened.case),
        )
    )


def _told(opened: Opened, checked: CheckedClaim) -> ClaimOut:
    return ClaimOut(
        kind=checked.claim.kind,
        sentence=opened.case.clean(checked.claim.sentence()),
        status=checked.status,
        why=opened.case.clean(checked.check.why),
        facts=facts_out(opened.ledger.show(checked.check.facts)),
    )
