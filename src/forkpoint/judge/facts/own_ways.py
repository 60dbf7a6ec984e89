"""Ways of their own: lines to which the source brings only some ranks, under a condition on the rank or its data; and threads."""

from msgspec import Struct

from forkpoint.diverge.cohorts import unrecorded_divergence
from forkpoint.judge.facts.stacks import (
    PartedStacks,
    Standing,
    find_standings,
    is_communicating,
    is_waiting_for_ranks,
    waits_for_all,
)
from forkpoint.model.capture import OnTheWay
from forkpoint.model.frames import Lines, program_lines
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind, Role
from forkpoint.model.verdict import Evidence


def leads_aside(parted: PartedStacks, incident: Incident) -> bool:
    """The odd ranks' call is made only under a condition on the rank or its data, and the others' is not."""
    ways = incident.capture.source.own_way
    here = {parted.standings[rank].place for rank in parted.odd}
    return here <= ways and all(one.place not in ways for r, one in parted.standings.items() if r not in parted.odd)


class LoneCaller(Struct, frozen=True):
    standing: Standing
    """The rank in a call that the source lets one rank alone make."""
    others: tuple[Standing, ...]

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return (self.standing.evidence, *(one.evidence for one in self.others[:3]))

    @property
    def divergence(self) -> Divergence:
        first = self.others[0]
        usual = Cohort(tuple(one.rank for one in self.others), Role.WAITING, first.called, stack=first.stack)
        own = Cohort((self.standing.rank,), Role.WAITING, self.standing.called, stack=self.standing.stack)
        return unrecorded_divergence(PartingKind.METADATA, (usual, own), (self.standing.rank,))


def find_lone_caller(incident: Incident) -> LoneCaller | None:
    """One rank waits in a call of the whole job that is under `rank == 0` and the like. All others wait in one other call, which is
    under no condition on the rank or its data: in an `else` they would have a call of their own.
    """
    source, standings = incident.capture.source, find_standings(incident)
    aside = [one for one in standings.values() if one.place in source.on_one_rank]
    others = tuple(one for _, one in sorted(standings.items()) if one not in aside)
    if len(aside) != 1 or not others or not all(map(waits_for_all, standings.values())):
        return None
    alike = len({one.place for one in others}) == 1 and others[0].place not in source.own_way
    return LoneCaller(aside[0], others) if alike else None


def find_in_a_branch_of_one(divergence: Divergence, incident: Incident) -> tuple[int, ...]:
    """The rank of the one side whose line is one rank's alone, under `rank == 0`, if the other side's is not. Not for messages: stages
    of a pipeline have lines of their own.
    """
    if divergence.how is not PartingKind.METADATA or divergence.channel is not None:
        return ()
    ways = incident.capture.source.on_one_rank
    # With NCCL a host is not in the call in which its GPU waits.
    standings = {
        r: s for r, s in find_standings(incident).items() if is_waiting_for_ranks(s.stack) and _blocks(r, incident)
    }

    def is_aside(rank: int) -> bool:
        places = {program_lines(c.stack) for c in divergence.cohorts if rank in c.ranks and c.stack}
        return not places.isdisjoint(ways) or (rank in standings and standings[rank].place in ways)

    aside = [side for side in divergence.sides if len(side) == 1 and is_aside(side[0])]
    others = [rank for side in divergence.sides for rank in side if aside and rank not in aside[0]]
    return aside[0] if len(aside) == 1 and others and not any(map(is_aside, others)) else ()


def _blocks(rank: int, incident: Incident) -> bool:
    trace = incident.timeline.traces.get(rank)
    return trace is None or trace.comm_lib == "gloo"


def may_be_of_two_threads(divergence: Divergence, incident: Incident) -> bool:
    """The dumps hold no lines of the calls, and a rank's stacks show two threads of it in communication calls."""
    return not any(c.stack for c in divergence.cohorts) and any(
        is_waiting_for_ranks(live.stack) and any(is_communicating(other) for _, other in live.others)
        for live in incident.capture.stacks
        if live.rank in divergence.group.ranks
    )


def find_way_to(rank: int, place: Lines, incident: Incident) -> OnTheWay | None:
    """The rank's last line that the source knows, if the call at this place is the next one that follows it."""
    return next((way for way in incident.capture.source.on_the_way if (way.rank, way.place) == (rank, place)), None)
