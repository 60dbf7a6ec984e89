"""Ranks by what they did at one slot."""

from collections.abc import Iterator, Sequence

from forkpoint.agent.case import Case
from forkpoint.agent.fact import Fact
from forkpoint.agent.tool import Refused, Tool
from forkpoint.agent.tools.answers import answer, fact
from forkpoint.agent.tools.calls import tell_sizes
from forkpoint.agent.tools.groups import find_group, known_seq, name_group
from forkpoint.agent.wire import Wire
from forkpoint.cohorts import cohorts_at
from forkpoint.model.divergence import Cohort, Divergence
from forkpoint.model.frames import user_place
from forkpoint.model.ranks import name_ranks
from forkpoint.model.tokens import SIZES_FREE


class Arguments(Wire):
    group: str | None
    """A group's name or description; null, with seq null: the fork point of the verdict."""
    seq: int | None


def cohorts(case: Case, asked: Arguments) -> Sequence[Fact]:
    if asked.group is None and asked.seq is None:
        return answer(_of_divergence(case), "ask for a group and a seq")
    if asked.group is None or asked.seq is None:
        raise Refused("give both group and seq, or null for both to get the fork point")
    group = find_group(case, asked.group)
    known_seq(group, asked.seq)
    where = f"{name_group(group.group, case.incident.timeline)} seq {asked.seq}"
    found = cohorts_at(group, asked.seq, case.incident.timeline)
    return answer((fact(case, where, _tell(cohort)) for cohort in found), "ask for another slot")


def _of_divergence(case: Case) -> Iterator[Fact]:
    first = case.verdict.divergence
    if first is None:
        raise Refused("the evidence shows no slot at which ranks part; ask with a group and a seq, or ask progress")
    where = _slot(first, case)
    yield fact(case, where, _tell_divergence(first))
    yield from (fact(case, where, _tell(cohort)) for cohort in first.cohorts)
    for other in case.incident.divergences:
        if other != first and _slot(other, case) != where:
            yield fact(case, _slot(other, case), f"ranks part here, too: {_tell_divergence(other)}")


def _slot(divergence: Divergence, case: Case) -> str:
    group = name_group(divergence.group, case.incident.timeline)
    if divergence.channel is not None:
        return f"{group} message {divergence.seq} of {divergence.channel[0]}->{divergence.channel[1]}"
    return f"{group} seq {divergence.seq}"


def _tell_divergence(divergence: Divergence) -> str:
    parts = [f"ranks part in {divergence.how}"]
    if divergence.first_visible_seq not in {None, divergence.seq}:
        parts.append(f"recorded calls differ first at seq {divergence.first_visible_seq}")
    if divergence.hang_seq is not None:
        parts.append(f"ranks wait in seq {divergence.hang_seq}")
    if divergence.odd:
        parts.append(f"unlike the rest: {name_ranks(divergence.odd)}")
    if divergence.shift is not None:
        shift = divergence.shift
        way = f"skipped {shift.by}" if shift.by > 0 else f"issued {-shift.by} more"
        parts.append(f"{name_ranks(shift.ranks)} {way} since seq {shift.since}")
    if divergence.cycle:
        parts.append(f"ranks {', '.join(map(str, divergence.cycle[:16]))} wait for each other in a ring")
    if divergence.unknown:
        parts.append(f"what {name_ranks(divergence.unknown)} did here is not known")
    return "; ".join(parts)


def _tell(cohort: Cohort) -> str:
    # Where sizes need not agree, a cohort's are those of one of its ranks.
    sizes = "with sizes of each rank's own (ask slots)" if cohort.op in SIZES_FREE else tell_sizes(cohort.sizes)
    call = " ".join(filter(None, [cohort.op, sizes, *dict.fromkeys(cohort.dtypes)]))
    place = user_place(cohort.stack)
    parts = [
        call or "no call here",
        *([cohort.state] if cohort.state else []),
        *([cohort.where] if cohort.where else []),
        *([f"called from {place}"] if place else []),
    ]
    return f"{name_ranks(cohort.ranks)} ({cohort.role}): {', '.join(parts)}"


TOOL = Tool(
    name="cohorts",
    description=(
        "Ranks by what they did at the fork point (group and seq null), or at any slot of a group: call, sizes, dtype, state, "
        "line it was called from, or why there is none."
    ),
    arguments=Arguments,
    answer=cohorts,
)
