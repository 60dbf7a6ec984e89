"""What each service is sent: what it asks for, all that a person needs, nothing that acts, and nobody accused in doubt."""

import json
import re
from dataclasses import replace

from hypothesis import Phase, given, settings
from jsonschema import Draft202012Validator

import verdicts
from forkpoint.model.verdict import Verdict
from forkpoint.sinks.notice import Notice
from forkpoint.sinks.services import SINKS, email, github, otel
from forkpoint.sinks.services.posted import pagerduty_event, slack_message, teams_message
from forkpoint.sinks.services.trackers import run_tags
from looping import for_each
from sinks.stand_ins import notice_of

KEY = "0123456789abcdef0123456789abcdef"
SEEN = ("the same fork was seen once before", "2026-11-02 3fa1b2c4 pretrain at 0a1b2c: resolved: call it on every rank")

# PagerDuty's OpenAPI document (reference/events-v2 of its api-schema), as far as it says anything of these fields, with the
# lengths that its documentation gives.
EVENT = Draft202012Validator(
    {
        "type": "object",
        "required": ["routing_key", "event_action", "payload"],
        "properties": {
            "routing_key": {"type": "string", "minLength": 32, "maxLength": 32},
            "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
            "dedup_key": {"type": "string", "minLength": 1, "maxLength": 255},
            "client": {"type": "string"},
            "payload": {
                "type": "object",
                "required": ["summary", "severity", "source"],
                "properties": {
                    "summary": {"type": "string", "minLength": 1, "maxLength": 1024},
                    "timestamp": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$"},
                    "severity": {"enum": ["critical", "warning", "error", "info"]},
                    "source": {"type": "string", "minLength": 1},
                    **{name: {"type": "string"} for name in ("component", "group", "class")},
                    "custom_details": {"type": "object"},
                },
                "additionalProperties": False,
            },
        },
        "additionalProperties": False,
    }
)

# Of the published schema of Adaptive Cards 1.4 the elements that are used; `make sweep` gives cards to the library itself.
_STYLED = {
    "weight": {"enum": ["default", "lighter", "bolder"]},
    "size": {"enum": ["default", "small", "medium", "large"]},
}
CARD = Draft202012Validator(
    {
        "type": "object",
        "required": ["type", "attachments"],
        "properties": {
            "type": {"const": "message"},
            "attachments": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["contentType", "content"],
                    "properties": {
                        "contentType": {"const": "application/vnd.microsoft.card.adaptive"},
                        "contentUrl": {"type": "null"},
                        "content": {
                            "type": "object",
                            "required": ["type", "version", "body"],
                            "properties": {
                                "$schema": {"const": "http://adaptivecards.io/schemas/adaptive-card.json"},
                                "type": {"const": "AdaptiveCard"},
                                "version": {"const": "1.4"},
                                "fallbackText": {"type": "string"},
                                "body": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "required": ["type", "inlines"],
                                        "properties": {
                                            "type": {"const": "RichTextBlock"},
                                            "spacing": {"enum": ["default", "none", "small", "medium", "large"]},
                                            "inlines": {
                                                "type": "array",
                                                "minItems": 1,
                                                "items": {
                                                    "type": "object",
                                                    "required": ["type", "text"],
                                                    "properties": {
                                                        "type": {"const": "TextRun"},
                                                        "text": {"type": "string"},
                                                        "color": {"enum": ["default", "attention", "warning"]},
                                                        **_STYLED,
                                                    },
                                                    "additionalProperties": False,
                                                },
                                            },
                                        },
                                        "additionalProperties": False,
                                    },
                                },
                            },
                            "additionalProperties": False,
                        },
                    },
                    "additionalProperties": False,
                },
            },
        },
        "additionalProperties": False,
    }
)


def rendered(notice: Notice) -> dict[str, str]:
    environ = {"FORKPOINT_PAGERDUTY_KEY": KEY, "FORKPOINT_EMAIL_TO": "a@example.org"}
    return {sink.name: sink.render(notice, environ) for sink in SINKS}


def test_every_service_is_told_who_and_what_and_whether_it_was_seen_before() -> None:
    for name, text in rendered(notice_of(seen=SEEN)).items():
        plain = text.replace("`", "").replace("\\", "")
        assert "rank 0" in plain.lower() or '"suspects": [' in plain, name
        assert verdicts.FOUND.cause in plain, name
        assert "call it on every rank" in plain, name


def test_what_is_not_decided_is_told_as_such_and_accuses_nobody() -> None:
    # Even if a detector were to name somebody.
    doubted = replace(verdicts.INCONCLUSIVE, suspects=(3,), hypotheses=(verdicts.STALLED,))
    notice = notice_of(doubted)

    assert not notice.suspects
    assert not notice.ranks
    told = rendered(notice)
    for name in ("slack", "teams", "pagerduty", "email", "github", "otel", "mlflow"):
        assert "ot decided" in told[name], name
        assert "suspects: rank" not in told[name], name
    assert json.loads(told["wandb"])["tags"] == ["forkpoint", "forkpoint:not-decided"]
    assert run_tags(notice)["forkpoint.decided"] == "no"
    assert pagerduty_event(notice, KEY)["payload"]["severity"] == "warning"
    assert otel.attributes(notice)["forkpoint.decided"] is False
    assert verdicts.STALLED.decides in " ".join(notice.readings)


@for_each(
    "verdict",
    [
        verdicts.FOUND,
        verdicts.INCONCLUSIVE,
        verdicts.crowded(512),
        replace(verdicts.FOUND, headline="", summary="x" * 9000),
    ],
)
def test_messages_are_what_the_services_ask_for_at_any_size(verdict: Verdict) -> None:
    notice = notice_of(verdict, seen=SEEN)

    EVENT.validate(pagerduty_event(notice, KEY))
    CARD.validate(teams_message(notice))
    assert len(json.dumps(teams_message(notice))) < 28_000
    assert len(str(slack_message(notice)["text"])) <= 4000
    assert len(github.body(notice)) <= 65_536
    assert len(github.title(notice)) <= 256
    assert email.mail(notice, {"FORKPOINT_EMAIL_TO": "a@example.org"})["Subject"].startswith("forkpoint: ")


@settings(max_examples=10, phases=[Phase.explicit, Phase.generate])  # a mask for each of its texts takes time
@given(verdicts.VERDICTS.map(lambda verdict: replace(verdict, moments=())))
def test_no_verdict_breaks_a_message(verdict: Verdict) -> None:
    notice = notice_of(verdict)
    told = rendered(notice)

    EVENT.validate(pagerduty_event(notice, KEY))
    CARD.validate(teams_message(notice))
    assert json.loads(told["webhook"])["schema"] == "forkpoint.verdict/1"


def test_nothing_in_evidence_can_mention_link_or_leave_its_place() -> None:
    hostile = "<!channel> @here [a](http://evil.example) \r\nBcc: all@example.org <script> **x** #1"
    site = replace(verdicts.FOUND.sites[0], file=hostile, why=hostile) if verdicts.FOUND.sites else None
    notice = notice_of(replace(verdicts.FOUND, headline=hostile, summary=hostile, sites=(site,) if site else ()))

    text = str(slack_message(notice)["text"])
    assert "<!channel>" not in text
    assert "`&lt;!channel&gt; @here [a]" in text.replace("(", "")
    mail = email.mail(notice, {"FORKPOINT_EMAIL_TO": "a@example.org"})
    assert mail["Bcc"] is None
    assert mail["To"] == "a@example.org"
    prose = re.sub(r"`[^`]*`", "", github.body(notice))
    assert [word for word in ("@here", "<script>", "evil.example", "#1") if word in prose] == []
    runs = [run for line in teams_message(notice)["attachments"][0]["content"]["body"] for run in line["inlines"]]
    assert {run["type"] for run in runs} == {"TextRun"}  # which shows text as it is


def test_secrets_of_the_job_are_masked_before_anything_is_sent() -> None:
    token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    leaking = replace(verdicts.FOUND, headline=f"Rank 1 used {token}", summary=f"Authorization: Bearer {token}")
    origin = notice_of().origin

    for name, text in rendered(notice_of(leaking, seen=(f"resolved: {token}",), origin=origin)).items():
        assert token not in text, name
