"""Earlier incidents at the same fork, as text: when, at which commit, and how they were resolved."""

from collections.abc import Sequence
from datetime import UTC, datetime

from forkpoint.history.queries import ListedIncident
from forkpoint.report.escape import escape

_COMMIT = 10
_ID = 8


def describe_seen(earlier: Sequence[ListedIncident], count: int) -> tuple[str, ...]:
    """One line for all of them, and one for each. Escaped for a terminal."""
    if not earlier:
        return ()
    times = "once" if count == 1 else f"{count} times"
    return (f"the same fork was seen {times} before", *map(_line, earlier))


def _line(incident: ListedIncident) -> str:
    words = [day(incident.at), incident.id[:_ID]]
    words += [incident.job] if incident.job else []
    words += [f"at {incident.commit[:_COMMIT]}"] if incident.commit else []
    return escape(f"{' '.join(words)}: {describe_resolution(incident)}")


def describe_resolution(incident: ListedIncident) -> str:
    if incident.resolved_at is None:
        return "not resolved"
    told = f"resolved {day(incident.resolved_at)}"
    told += f" by {incident.resolved_commit[:_COMMIT]}" if incident.resolved_commit else ""
    return f"{told}: {incident.resolved_note}" if incident.resolved_note else told


def day(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d")
