"""Telling others, over real sockets and processes."""

import json
import sys
from pathlib import Path

import pytest

import verdicts
from forkpoint.errors import UsageError
from forkpoint.live.watch import alerts
from forkpoint.live.watch.alerts import Alerts, parse_webhook
from forkpoint.report.json_report import render_json
from looping import for_each
from watch.others import answering, drips, hooked


def test_a_webhook_gets_the_verdict_and_is_tried_again_while_its_server_fails() -> None:
    with hooked([503, 429]) as (url, heard):
        notes = Alerts(parse_webhook(url), pause_s=0.01).send(verdicts.FOUND)

    assert notes == ()
    assert [path for path, _ in heard] == ["/services/secret?a=b"] * 3
    assert heard[-1][1].decode() == render_json(verdicts.FOUND)


@for_each(("statuses", "tries"), [([500] * 9, 3), ([404] * 9, 1), ([302] * 9, 1)])
def test_a_webhook_that_refuses_is_a_note_without_the_secret_and_redirects_are_not_followed(
    statuses: list[int], tries: int
) -> None:
    with hooked(list(statuses)) as (url, heard):
        notes = Alerts(parse_webhook(url), pause_s=0.01).send(verdicts.FOUND)

    assert len(heard) == tries
    assert f"status {statuses[0]}" in notes[0].text
    assert "secret" not in notes[0].text


def test_a_webhook_that_is_not_there_is_a_note() -> None:
    with hooked([]) as (url, _):
        pass

    assert "could not be notified" in Alerts(parse_webhook(url), pause_s=0.01).send(verdicts.FOUND)[0].text


def test_a_webhook_that_answers_in_drops_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "_LIMIT_S", 0.3)
    with answering(drips) as address:
        notes = Alerts(parse_webhook(f"http://{address}/"), pause_s=0.01).send(verdicts.FOUND)

    assert "could not be notified" in notes[0].text


@for_each("url", ["ftp://a/b", "file:///etc/passwd", "a.b", "http://", "https://user:pw@a/b", "http://a/\nb"])
def test_only_http_addresses_without_passwords_are_taken(url: str) -> None:
    with pytest.raises(UsageError):
        parse_webhook(url)


def test_a_command_gets_the_verdict_on_standard_input_and_its_arguments_as_they_are(tmp_path: Path) -> None:
    code = "import json, sys; open(sys.argv[1], 'w').write(json.load(sys.stdin)['cause'] + sys.argv[2])"
    command = (sys.executable, "-c", code, str(tmp_path / "told"), "; $(touch here) 'x'")

    assert Alerts(command=command).send(verdicts.FOUND) == ()
    assert (tmp_path / "told").read_text() == f"{verdicts.FOUND.cause}; $(touch here) 'x'"


@for_each(
    ("command", "limit_s", "note"),
    [
        (("/nowhere/to/be/found",), 600.0, "cannot be run"),
        ((sys.executable, "-c", "raise SystemExit(7)"), 600.0, "exit code 7"),
        ((sys.executable, "-c", "import time; time.sleep(3600)"), 1.0, "not done after 1 s, ended"),
    ],
)
def test_a_command_that_fails_or_hangs_is_a_note(command: tuple[str, ...], limit_s: float, note: str) -> None:
    notes = Alerts(command=command, command_limit_s=limit_s).send(verdicts.FOUND)

    assert note in notes[0].text


def test_a_command_that_does_not_read_its_input_is_no_failure() -> None:
    assert Alerts(command=(sys.executable, "-c", "pass")).send(verdicts.crowded(64)) == ()
    assert json.loads(render_json(verdicts.crowded(64)))
