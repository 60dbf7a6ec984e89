"""Process groups as a model names them and as facts name them."""

from collections import Counter

from forkpoint.agent.case import Case
from forkpoint.agent.tool import Refused
from forkpoint.agent.tools.answers import names
from forkpoint.model.ranks import name_ranks
from forkpoint.model.timeline import GroupTimeline, Timeline
from forkpoint.model.world import ProcessGroup

_RANGES = 4


def name_group(group: ProcessGroup, timeline: Timeline) -> str:
    """`default_pg`; where several groups are called so, also what tells this one from them."""
    return _told_apart(group, sum(str(g.group) == str(group) for g in timeline.groups))


def matching_groups(case: Case, named: str) -> tuple[GroupTimeline, ...]:
    """Groups called so: by what facts show, by name, or by description. Several may be."""
    groups = case.incident.timeline.groups
    for spelled in (_spelled(case), [g.group.name for g in groups], [g.group.desc for g in groups]):
        found = tuple(group for group, name in zip(groups, spelled, strict=True) if name == named)
        if found:
            return found
    return ()


def find_group(case: Case, named: str) -> GroupTimeline:
    """The one group called so."""
    found = matching_groups(case, named)
    if len(found) == 1:
        return found[0]
    if found:
        members = [case.clean(_told_apart(g.group, len(found))) for g in found]
        raise Refused(f"several groups are called so: {names(members)}")
    spelled = _spelled(case)
    if not spelled:
        raise Refused("no dump of this case tells of groups; ask log_lines for what the logs say")
    raise Refused(f"there is no such group; there are {names(spelled)}")


def known_seq(group: GroupTimeline, seq: int) -> range:
    """The seqs that some member recorded. One more may be asked for: the slot to which nobody has come."""
    held = [track for rank in group.traces if (track := group.track(rank))]
    if not held:
        raise Refused("no rank holds a call of this group; ask progress")
    first, last = min(t.first_seq for t in held), max(t.last_seq for t in held)
    if not first <= seq <= last + 1:
        raise Refused(f"recorded are seq {first} to {last} of this group")
    return range(first, last + 1)


def _spelled(case: Case) -> list[str]:
    """The names of all groups as facts show them."""
    groups = [g.group for g in case.incident.timeline.groups]
    counts = Counter(map(str, groups))
    return [case.clean(_told_apart(group, counts[str(group)])) for group in groups]


def _told_apart(group: ProcessGroup, alike: int) -> str:
    return str(group) if alike < 2 else f"{group} (name {group.name}, {name_ranks(group.ranks, _RANGES)})"
