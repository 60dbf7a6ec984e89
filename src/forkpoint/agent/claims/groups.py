"""The group that a claim means."""

from collections.abc import Sequence

from forkpoint.agent.case import Case
from forkpoint.agent.claim import Check, Status
from forkpoint.agent.claims.wording import is_plain, named, told_ranks
from forkpoint.agent.tools.groups import matching_groups, name_group
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.world import ProcessGroup

_LISTED = 8


def find_group(name: str, ranks: list[int], case: Case) -> GroupTimeline | Check:
    """By name or description. Groups that share one are told apart by who is in them."""
    if not ranks or not all(is_plain(rank) for rank in ranks):
        return Check.unverifiable(f"{told_ranks(ranks)}: name the ranks that are meant")
    meant = matching_groups(case, name)
    if not meant:
        return Check.unverifiable(f"no dump has a group {named(name)}; {_listed(case.incident.timeline.groups, case)}")
    holding = [g for g in meant if set(ranks) <= {*g.group.ranks, *g.maybe}]
    if len(holding) == 1:
        return holding[0]
    if holding:
        return Check.unverifiable(f"{len(holding)} groups are called {named(name)}; {_listed(holding, case)}")
    strangers = set(ranks) - {r for g in meant for r in (*g.group.ranks, *g.maybe)}
    if strangers:
        are = "is" if len(strangers) == 1 else "are"
        why = f"{told_ranks([*strangers])} {are} not of {named(name)}; {_listed(meant, case)}"
        return Check(Status.CONTRADICTED, why)
    return Check.unverifiable(f"no one group {named(name)} has all of these ranks; {_listed(meant, case)}")


def shown(group: ProcessGroup, case: Case) -> str:
    """As tools name it."""
    return case.clean(name_group(group, case.incident.timeline))


def _listed(groups: Sequence[GroupTimeline], case: Case) -> str:
    if not groups:
        return "no dump was read"
    told = [f"{shown(g.group, case)} of {told_ranks(g.group.ranks)}" for g in groups[:_LISTED]]
    more = f" and {len(groups) - _LISTED} more" if len(groups) > _LISTED else ""
    return f"there {'is' if len(groups) == 1 else 'are'} {', '.join(told)}{more}"
