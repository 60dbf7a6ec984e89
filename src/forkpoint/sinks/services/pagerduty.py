"""An alert by PagerDuty's Events API v2. Incidents of one job at one fork update the same alert (`dedup_key`)."""

import json
from collections.abc import Mapping

from forkpoint.sinks.notice import Notice
from forkpoint.sinks.sink import Sink, Variable
from forkpoint.sinks.web import HttpCall, post_json

_KEY = Variable(
    "FORKPOINT_PAGERDUTY_KEY", "the integration key of an Events API v2 integration", required=True, secret=True
)
_URL = Variable("FORKPOINT_PAGERDUTY_URL", "for accounts in the EU: https://events.eu.pagerduty.com/v2/enqueue")
_DEFAULT_URL = "https://events.pagerduty.com/v2/enqueue"
_MAX_SUMMARY = 1024
_MAX_KEY = 255


def event(notice: Notice, key: str) -> dict[str, object]:
    details: dict[str, object] = {}
    for label, text in notice.facts():  # facts with the same label become lines of one entry
        details[label] = f"{details[label]}\n{text}" if label in details else text
    details |= {"summary": notice.summary, "ranks": list(notice.suspects[:1000])}
    return {
        "routing_key": key,
        "event_action": "trigger",
        "dedup_key": f"forkpoint/{notice.fork}/{notice.origin.job or '-'}"[:_MAX_KEY],
        "client": "forkpoint",
        "payload": {
            "summary": notice.title[:_MAX_SUMMARY],
            "source": notice.origin.host,
            "severity": _severity(notice),
            "timestamp": notice.at,
            "component": notice.ranks or "job",
            "group": notice.origin.job or "training",
            "class": notice.cause,
            "custom_details": details,
        },
    }


def _severity(notice: Notice) -> str:
    if not notice.is_decided:
        return "warning"
    return "critical" if notice.is_likely else "error"


def render(notice: Notice, environ: Mapping[str, str]) -> str:
    return json.dumps(event(notice, environ.get(_KEY.name, "")), indent=2)


def send(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    post_json(HttpCall(environ.get(_URL.name) or _DEFAULT_URL, event(notice, environ[_KEY.name])), limit_s)


SINK = Sink("pagerduty", "an alert for whoever is on call", (_KEY, _URL), render, send, acts=True)
