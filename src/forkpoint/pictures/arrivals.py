"""Who arrives last, for a table of the page."""

from forkpoint.model.incident import Incident
from forkpoint.model.picture import LastArrivals
from forkpoint.stragglers import FEWEST, find_arrivals

MAX_ROWS = 40
MAX_LAST = 4
_NS_PER_MS = 1_000_000


def draw_arrivals(incident: Incident) -> tuple[LastArrivals, ...]:
    """Places where a group met often enough to tell something; those with a straggler first."""
    told = [one for one in find_arrivals(incident) if one.met >= FEWEST]
    return tuple(
        LastArrivals(
            group=one.group.name,
            desc=one.group.desc,
            host=one.host,
            compared=len(one.ranks),
            site=one.site,
            met=one.met,
            last=tuple((late.rank, late.times, late.usual_ns / _NS_PER_MS) for late in one.last[:MAX_LAST]),
            odd=one.straggler is not None,
        )
        for one in told[:MAX_ROWS]
    )
