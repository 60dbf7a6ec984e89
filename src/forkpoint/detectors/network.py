"""Network errors in logs that came before the timeout: afterwards connections break because ranks are taken down."""

from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import LogEvent, LogKind

_AFTER = frozenset({LogKind.WATCHDOG_TIMEOUT, LogKind.DUMPED})


@fact
def network_events(incident: Incident) -> tuple[LogEvent, ...]:
    """Per log, those above its first word of a timeout or dump. Lines of one log are in order; clocks are not used.

    Not with gloo: it has no watchdog whose word would part cause and consequence.
    """
    if any(t.comm_lib == "gloo" for t in incident.timeline.traces.values()):
        return ()
    found: list[LogEvent] = []
    ended: set[str] = set()
    for event in incident.capture.events:
        if event.kind in _AFTER:
            ended.add(event.file)
        elif event.kind is LogKind.NETWORK and event.file not in ended:
            found.append(event)
    return tuple(found)
