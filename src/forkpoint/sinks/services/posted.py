"""Services that take one JSON document at an address: Slack, Teams, PagerDuty, and a webhook of your own."""

import json
from collections.abc import Callable, Mapping
from typing import Final

from forkpoint.report.escape import ascii_json
from forkpoint.report.markdown import code, sentence
from forkpoint.sinks.notice import Notice
from forkpoint.sinks.sink import Sink, Variable
from forkpoint.sinks.web import HttpCall, post_json


def _posting(name: str, says: str, url: Variable, message: Callable[[Notice], object]) -> Sink:
    """A sink that posts the message to the address in a variable."""

    def render(notice: Notice, _environ: Mapping[str, str]) -> str:
        return ascii_json(message(notice), indent=2)

    def send(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
        post_json(HttpCall(environ[url.name], message(notice)), limit_s)

    return Sink(name, says, (url,), render, send)


# ---------------------------------------------------------------------------------------------------------------------
# Slack's incoming webhooks, and programs that take the same (Mattermost, Rocket.Chat, Zulip).
#
# One field, `text`: only Slack shows Slack's blocks. Text from the evidence is in code spans, where it becomes no mention and
# no link, with Slack's three special characters escaped.

_SLACK_URL: Final = Variable("FORKPOINT_SLACK_URL", "the address of the incoming webhook", required=True, secret=True)
_MAX_TEXT = 3500
"""Slack recommends at most 4,000, and truncates far above that."""
_LINE = 500


def slack_message(notice: Notice) -> dict[str, object]:
    lines = [
        f"*{_safe(sentence(notice.title, _LINE))}*",
        *(f"{label}: {_safe(_fact(label, text))}" for label, text in notice.facts()),
    ]
    kept: list[str] = []
    for line in lines:
        if sum(map(len, kept)) + len(kept) + len(line) > _MAX_TEXT:
            kept.append("...")
            break
        kept.append(line)
    return {"text": "\n".join(kept), "unfurl_links": False, "unfurl_media": False}


def _fact(label: str, text: str) -> str:
    return code(text, _LINE) if label in ("next", "evidence") else sentence(text, _LINE)


def _safe(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


SLACK: Final = _posting(
    "slack", "a message in a channel; also Mattermost and others that take the same", _SLACK_URL, slack_message
)


# ---------------------------------------------------------------------------------------------------------------------
# Microsoft Teams: an Adaptive Card, by the Workflows template "Post to a channel when a webhook request is received".
#
# Texts are runs of a RichTextBlock, which Teams shows literally: a TextBlock would interpret Markdown in the evidence.

_TEAMS_URL: Final = Variable("FORKPOINT_TEAMS_URL", "the address that the Workflow shows", required=True, secret=True)
_CARD = "application/vnd.microsoft.card.adaptive"
_VERSION = "1.4"
"""Teams shows up to 1.5; nothing newer than 1.2 is used."""
_MAX_FACTS = 24
"""A fact has at most 600 characters, and a message may have 28 kB."""


def teams_message(notice: Notice) -> dict[str, object]:
    """The title is also in `fallbackText`, for clients that show no cards."""
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": _VERSION,
        "fallbackText": notice.title,
        "body": [
            _line(
                [
                    _run(
                        notice.title,
                        weight="bolder",
                        size="medium",
                        color="attention" if notice.is_decided else "warning",
                    )
                ]
            ),
            *(
                _line([_run(f"{label}: ", weight="bolder"), _run(text)], spacing="small")
                for label, text in notice.facts()[:_MAX_FACTS]
            ),
        ],
    }
    return {"type": "message", "attachments": [{"contentType": _CARD, "contentUrl": None, "content": card}]}


def _line(runs: list[dict[str, str]], **style: str) -> dict[str, object]:
    return {"type": "RichTextBlock", "inlines": runs, **style}


def _run(text: str, **style: str) -> dict[str, str]:
    return {"type": "TextRun", "text": text, **style}


TEAMS: Final = _posting("teams", "a card in a Microsoft Teams channel", _TEAMS_URL, teams_message)


# ---------------------------------------------------------------------------------------------------------------------
# PagerDuty's Events API v2. Incidents of one job at one fork update the same alert (`dedup_key`).

_PAGERDUTY_KEY: Final = Variable(
    "FORKPOINT_PAGERDUTY_KEY", "the integration key of an Events API v2 integration", required=True, secret=True
)
_PAGERDUTY_URL: Final = Variable(
    "FORKPOINT_PAGERDUTY_URL", "for accounts in the EU: https://events.eu.pagerduty.com/v2/enqueue"
)
_DEFAULT_URL = "https://events.pagerduty.com/v2/enqueue"
_MAX_SUMMARY = 1024
_MAX_KEY = 255


def pagerduty_event(notice: Notice, key: str) -> dict[str, object]:
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


def _render_event(notice: Notice, environ: Mapping[str, str]) -> str:
    return ascii_json(pagerduty_event(notice, environ.get(_PAGERDUTY_KEY.name, "")), indent=2)


def _send_event(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    event = pagerduty_event(notice, environ[_PAGERDUTY_KEY.name])
    post_json(HttpCall(environ.get(_PAGERDUTY_URL.name) or _DEFAULT_URL, event), limit_s)


PAGERDUTY: Final = Sink(
    "pagerduty",
    "an alert for whoever is on call",
    (_PAGERDUTY_KEY, _PAGERDUTY_URL),
    _render_event,
    _send_event,
    acts=True,
)


# ---------------------------------------------------------------------------------------------------------------------
# An address of your own: the verdict, with `seen_before` beside its fields.

_WEBHOOK_URL: Final = Variable("FORKPOINT_WEBHOOK_URL", "where the JSON is posted", required=True, secret=True)


def _document(notice: Notice) -> object:
    return json.loads(notice.document)


WEBHOOK: Final = _posting("webhook", "the verdict as JSON to an address of yours", _WEBHOOK_URL, _document)
