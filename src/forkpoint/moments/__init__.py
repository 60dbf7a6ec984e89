"""Incident -> Moments: what happened when, over dumps, logs, stacks and machines, as one timeline.

Times are compared only on one clock (`clocks`). Many ranks that tell the same are one moment.
"""

from collections import defaultdict
from datetime import UTC, datetime

from forkpoint.clocks import find_clocks
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import NOT_DATED, Moment, Source
from forkpoint.moments.logs import find_said
from forkpoint.moments.machines import find_remarked
from forkpoint.moments.order import in_order
from forkpoint.moments.recorder import find_recorded
from forkpoint.moments.same import Same
from forkpoint.moments.sighting import Sighting

MAX_MOMENTS = 200


def find_moments(incident: Incident) -> tuple[Moment, ...]:
    """In order clock by clock: that of most dumps first, then the others by name, then what nothing dates."""
    clocks = find_clocks(incident)
    hosts = {place.rank: place.host for place in incident.capture.places}
    by_clock: dict[str, dict[tuple[str, ...], Same]] = defaultdict(lambda: defaultdict(Same))
    for find in (find_recorded, find_said, find_remarked):
        for one in find(incident, clocks):
            by_clock[one.clock][one.source, one.kind, one.about, str(one.bound)].add(one)
    lanes = sorted(by_clock, key=lambda clock: (clock == NOT_DATED, clock != clocks.common, clock))
    told = [same for clock in lanes for same in in_order(by_clock[clock].values(), limit=MAX_MOMENTS)]
    return tuple(_moment(same, hosts, clocks.common) for same in told[:MAX_MOMENTS])


def _moment(same: Same, hosts: dict[int, str], common: str) -> Moment:
    first, last = same.first, same.last
    told = {one.evidence.rank: one.host for one in same.sightings}
    where = {told.get(rank) or hosts.get(rank) for rank in same.ranks} or {first.host}
    return Moment(
        when=_when(first),
        until=_when(last) if last.second != first.second else None,
        bound=first.bound,
        utc=_utc(first.second) if first.clock == common else None,
        clock=first.clock,
        source=first.source,
        kind=first.kind,
        ranks=tuple(sorted(same.ranks)),
        host=where.pop() if len(where) == 1 else None,
        says=first.says,
        evidence=first.evidence,
    )


def _when(one: Sighting) -> str | None:
    return _utc(one.second) if one.source is Source.RECORDER else one.when


def _utc(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
