"""The verdict's JSON to an address of your own, with `seen_before` beside the verdict's fields."""

import json
from collections.abc import Mapping

from forkpoint.sinks.notice import Notice
from forkpoint.sinks.sink import Sink, Variable
from forkpoint.sinks.web import HttpCall, post_json

_URL = Variable("FORKPOINT_WEBHOOK_URL", "where the JSON is posted", required=True, secret=True)


def render(notice: Notice, _environ: Mapping[str, str]) -> str:
    return notice.document


def send(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    post_json(HttpCall(environ[_URL.name], json.loads(notice.document)), limit_s)


SINK = Sink("webhook", "the verdict as JSON to an address of yours", (_URL,), render, send)
