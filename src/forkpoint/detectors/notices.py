"""Lines with which a program itself says that it left something out: a batch, a step, the rest of an epoch."""

from forkpoint.model.incident import Incident
from forkpoint.model.log import LogEvent, LogKind

_LEAST = 2
"""Other ranks that must be heard, for the silence of all of them to mean something."""


def find_lone_notice(incident: Incident) -> LogEvent | None:
    """The last such line of the only rank that printed one, where others have logs too."""
    notices = [e for e in incident.capture.events if e.kind is LogKind.NOTICE and e.rank is not None]
    ranks = {e.rank for e in notices}
    others = incident.heard - ranks
    if len(ranks) != 1 or len(others) < max(_LEAST, len(incident.timeline.world) // 2):
        return None
    return max(notices, key=lambda event: event.line)
