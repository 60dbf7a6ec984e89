"""One answer for several ranks: all must hold, and one that is shown otherwise is enough."""

from collections.abc import Mapping

from forkpoint.agent.claim import Check, Status
from forkpoint.agent.fact import Fact

_MOST_FACTS = 4


def tally(by_rank: Mapping[int, tuple[tuple[Status, str], Fact | None]]) -> Check:
    for status in (Status.CONTRADICTED, Status.UNVERIFIABLE, Status.SUPPORTED):
        ranks = sorted(rank for rank, ((found, _), _) in by_rank.items() if found is status)
        if ranks:
            (_, why), _ = by_rank[ranks[0]]
            more = f" ({len(ranks)} of {len(by_rank)} ranks likewise)" if len(ranks) > 1 else ""
            facts = [fact for rank in ranks if (fact := by_rank[rank][1])]
            return Check(status, f"{why}{more}", tuple(facts[:_MOST_FACTS]))
    return Check.unverifiable("no rank is named")
