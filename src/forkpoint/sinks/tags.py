"""A notice as tags of a training run, for services that track experiments."""

from forkpoint.sinks.notice import Notice

_MAX_VALUE = 4000
"""MLflow takes 5,000 characters and, before 2.1, five hundred."""


def run_tags(notice: Notice) -> dict[str, str]:
    told = {
        "forkpoint.cause": notice.cause,
        "forkpoint.decided": "yes" if notice.is_decided else "no",
        "forkpoint.headline": notice.title,
        "forkpoint.action": notice.action,
        "forkpoint.confidence": f"{notice.confidence:.2f}",
        "forkpoint.suspects": notice.ranks or "none singled out",
        "forkpoint.where": "; ".join(notice.sites),
        "forkpoint.maybe": "; ".join(notice.readings),
        "forkpoint.seen": "; ".join(notice.seen),
        "forkpoint.fork": notice.fork,
        "forkpoint.at": notice.at,
        "forkpoint.evidence": notice.origin.evidence or "",
    }
    return {name: value[:_MAX_VALUE] for name, value in told.items() if value}
