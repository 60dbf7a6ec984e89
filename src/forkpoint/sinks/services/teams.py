"""An Adaptive Card for a Teams channel, by the Workflows template "Post to a channel when a webhook request is received".

Texts are runs of a RichTextBlock, which Teams shows literally: a TextBlock would interpret Markdown in the evidence.
"""

import json
from collections.abc import Mapping

from forkpoint.sinks.notice import Notice
from forkpoint.sinks.sink import Sink, Variable
from forkpoint.sinks.web import HttpCall, post_json

_URL = Variable("FORKPOINT_TEAMS_URL", "the address that the Workflow shows", required=True, secret=True)
_CARD = "application/vnd.microsoft.card.adaptive"
_VERSION = "1.4"
"""Teams shows up to 1.5; nothing newer than 1.2 is used."""
_MAX_FACTS = 24
"""A fact has at most 600 characters, and a message may have 28 kB."""


def message(notice: Notice) -> dict[str, object]:
    """The title is also in `fallbackText`, for clients that show no cards."""
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": _VERSION,
        "fallbackText": notice.title,
        "body": [
            _line([_run(notice.title, weight="bolder", size="medium", color=_colour(notice))]),
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


def _colour(notice: Notice) -> str:
    return "attention" if notice.is_decided else "warning"


def render(notice: Notice, _environ: Mapping[str, str]) -> str:
    return json.dumps(message(notice), indent=2)


def send(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    post_json(HttpCall(environ[_URL.name], message(notice)), limit_s)


SINK = Sink("teams", "a card in a Microsoft Teams channel", (_URL,), render, send)
