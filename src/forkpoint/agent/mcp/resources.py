"""What can be read by its address: the verdict, the report, and single pieces of evidence."""

import json

import mcp_types as wire

from forkpoint.agent.fact import Shown
from forkpoint.agent.mcp.cleaned import report_as_text, verdict_as_json
from forkpoint.agent.mcp.desk import Opened
from forkpoint.agent.tool import Refused

_JSON, _TEXT = "application/json", "text/plain"
_VERDICT, _REPORT, _EVIDENCE = "case://verdict", "case://report", "case://evidence/"

RESOURCES = (
    wire.Resource(
        name="verdict", uri=_VERDICT, description="The verdict as JSON (schema forkpoint.verdict/1)", mime_type=_JSON
    ),
    wire.Resource(name="report", uri=_REPORT, description="The verdict as people read it", mime_type=_TEXT),
)
TEMPLATES = (
    wire.ResourceTemplate(
        name="evidence",
        uri_template=f"{_EVIDENCE}{{id}}",
        description="One piece of evidence of the verdict (E1, E2, ...), or one fact that a tool has shown (F1, F2, ...)",
        mime_type=_JSON,
    ),
)


def read_resource(opened: Opened, uri: str) -> wire.TextResourceContents:
    if uri == _VERDICT:
        return _contents(uri, _JSON, json.dumps(verdict_as_json(opened.case), indent=1))
    if uri == _REPORT:
        return _contents(uri, _TEXT, report_as_text(opened.case))
    if uri.startswith(_EVIDENCE):
        return _contents(uri, _JSON, json.dumps(_evidence(opened, uri.removeprefix(_EVIDENCE)), indent=1))
    raise Refused(f"there is nothing at this address; there are {_VERDICT}, {_REPORT} and {_EVIDENCE}ID")


def _evidence(opened: Opened, number: str) -> dict[str, object]:
    for evidence in verdict_as_json(opened.case)["evidence"]:
        if evidence["id"] == number:
            return evidence
    for shown in opened.ledger.shown:
        if shown.id == number:
            return _as_json(shown)
    raise Refused("no such id: E1, E2, ... are the verdict's evidence, F1, F2, ... facts that a tool has shown")


def _as_json(shown: Shown) -> dict[str, object]:
    return {"id": shown.id, "where": shown.fact.where, "says": shown.fact.says}


def _contents(uri: str, kind: str, text: str) -> wire.TextResourceContents:
    return wire.TextResourceContents(uri=uri, mime_type=kind, text=text)
