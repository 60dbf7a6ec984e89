"""A message for Slack's incoming webhooks, and for programs that take the same (Mattermost, Rocket.Chat, Zulip).

One field, `text`: only Slack shows Slack's blocks. Text from the evidence is in code spans, where it becomes no mention and
no link, with Slack's three special characters escaped.
"""

import json
from collections.abc import Mapping

from forkpoint.report.markdown import code, sentence
from forkpoint.sinks.notice import Notice
from forkpoint.sinks.sink import Sink, Variable
from forkpoint.sinks.web import HttpCall, post_json

_URL = Variable("FORKPOINT_SLACK_URL", "the address of the incoming webhook", required=True, secret=True)
_MAX_TEXT = 3500
"""Slack recommends at most 4,000, and truncates far above that."""
_LINE = 500


def message(notice: Notice) -> dict[str, object]:
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


def render(notice: Notice, _environ: Mapping[str, str]) -> str:
    return json.dumps(message(notice), indent=2)


def send(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    post_json(HttpCall(environ[_URL.name], message(notice)), limit_s)


SINK = Sink("slack", "a message in a channel; also Mattermost and others that take the same", (_URL,), render, send)
