"""Services that are down, busy, broken, hostile or slow cost one line within a limit, and never a secret."""

import json
import shlex
import sys
from pathlib import Path

import pytest

import verdicts
from forkpoint.live import children
from forkpoint.live.children import NotifySettings, Sending, split_sinks
from forkpoint.sinks import sink as sinks
from forkpoint.sinks.services import SINKS
from forkpoint.sinks.sink import Sink, SinkOutcome, deliver
from forkpoint.sinks.worker import SendTask, render_all, send_all
from looping import for_each
from sinks.stand_ins import SECRET, Answer, certificate, notice_of, silent_service, unused_address, web_service

BY_NAME = {sink.name: sink for sink in SINKS}
KEY = "0123456789abcdef0123456789abcdef"
PATIENCE_S = 600.0
NOTICE = notice_of()


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "_PAUSE_S", 0.01)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


def to(url: str) -> dict[str, str]:
    """Every service that is reached by HTTP, at this address."""
    return {
        "FORKPOINT_SLACK_URL": url,
        "FORKPOINT_TEAMS_URL": url,
        "FORKPOINT_WEBHOOK_URL": url,
        "FORKPOINT_PAGERDUTY_URL": url,
        "FORKPOINT_PAGERDUTY_KEY": KEY,
        "GITHUB_API_URL": url,
        "GITHUB_REPOSITORY": "team/training",
        "FORKPOINT_GITHUB_TOKEN": "github-token-1",
    }


OVER_HTTP = [BY_NAME[name] for name in ("slack", "teams", "pagerduty", "webhook", "github")]


@for_each("sink", OVER_HTTP)
def test_a_service_is_told_once_with_what_it_would_be_sent(sink: Sink) -> None:
    with web_service() as service:
        assert deliver(sink, NOTICE, to(service.url), PATIENCE_S) == SinkOutcome(sink.name)

    *asked, told = service.heard
    assert [one.method for one in asked] == (["GET"] if sink.name == "github" else [])
    assert told.method == "POST"
    assert told.headers["Content-Type"] == "application/json"
    assert told.json


@for_each(
    ("answers", "tries", "says"),
    [
        ([Answer(503), Answer(500)], 3, None),
        ([Answer(429, (("Retry-After", "0"),))], 2, None),
        (
            [Answer(429, (("Retry-After", "7200"),))],  # longer than there is time
            1,
            "status 429 (ok), try again after 7200 s",
        ),
        ([Answer(403, (("Retry-After", "0"),))], 2, None),  # GitHub's second limit
        ([Answer(500)] * 9, 4, "status 500 (ok), tried 4 times"),
        ([Answer(503, (("Retry-After", "soon"),))] * 9, 4, "tried 4 times"),
        ([Answer(404, body=b"no_team")], 1, "status 404 (no_team)"),
        ([Answer(403, body=f"bad path {SECRET}".encode())], 1, "status 403 (bad path ***)"),
        ([Answer(302, (("Location", "http://127.0.0.1:1/elsewhere"),))], 1, "a redirect that is not followed"),
        ([Answer(307, (("Location", "http://127.0.0.1:1/elsewhere"),))], 1, "a redirect that is not followed"),
    ],
)
def test_what_may_pass_is_tried_again_and_the_rest_is_said_once(
    answers: list[Answer], tries: int, says: str | None
) -> None:
    with web_service(answers) as service:
        outcome = deliver(BY_NAME["slack"], NOTICE, to(service.url), PATIENCE_S)

    assert len(service.heard) == tries
    assert (outcome.problem is None) == (says is None)
    assert (says or "") in (outcome.problem or "")
    assert SECRET not in str(outcome)


def test_a_server_that_is_not_there_is_said_without_its_address() -> None:
    outcome = deliver(BY_NAME["teams"], NOTICE, to(f"http://{unused_address()}/{SECRET}"), PATIENCE_S)

    assert "Connection refused" in str(outcome.problem)
    assert "tried 4 times" in str(outcome.problem)
    assert SECRET not in str(outcome)


def test_only_servers_with_a_trusted_certificate_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context, trusted = certificate(tmp_path)
    with web_service(tls=context) as service:
        refused = deliver(BY_NAME["slack"], NOTICE, to(service.url), PATIENCE_S)
        plain = deliver(BY_NAME["slack"], NOTICE, to(service.url.replace("https", "http")), 5.0)
        assert service.heard == []
        monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
        assert deliver(BY_NAME["slack"], NOTICE, to(service.url), PATIENCE_S) == SinkOutcome("slack")
    with web_service() as service:
        no_tls = deliver(BY_NAME["slack"], NOTICE, to(service.url.replace("http", "https")), PATIENCE_S)

    assert "its certificate is not trusted (self" in str(refused.problem)
    assert plain.problem
    assert "no TLS connection" in str(no_tls.problem)


@for_each("drip", [b"H", b"", b"HTTP/1.1 200 OK\r\nX: "], one_in=3)
def test_a_service_that_hangs_costs_its_limit_and_keeps_nobody_else_from_being_told(drip: bytes) -> None:
    with silent_service(drip) as hangs, web_service() as service:
        environ = to(service.url) | {"FORKPOINT_SLACK_URL": hangs}
        task = SendTask(("slack", "webhook", "pagerduty"), NOTICE, 8.0)
        slack, *others = send_all(task, environ)

    assert slack.problem in ("not done after 8 s, given up", "timed out", "The read operation timed out")
    assert others == [SinkOutcome("webhook"), SinkOutcome("pagerduty")]


@for_each("url", ["ftp://a/b", "file:///etc/passwd", "a.b", "http://", "https://user:pw@a/b", "http://a/\nb"])
def test_only_http_addresses_without_passwords_are_taken(url: str) -> None:
    outcome = deliver(BY_NAME["webhook"], NOTICE, to(url), PATIENCE_S)

    assert "must be http or https" in str(outcome.problem)
    assert "pw" not in str(outcome.problem)


def test_those_who_wake_people_are_told_of_what_is_decided_unless_more_is_asked_for() -> None:
    doubt = notice_of(verdicts.INCONCLUSIVE)
    with web_service() as service:
        skipped = send_all(SendTask(("pagerduty", "github", "slack"), doubt, PATIENCE_S), to(service.url))
        assert [one.path for one in service.heard] == [f"/services/{SECRET}"]  # Slack's
        asked = send_all(SendTask(("pagerduty",), doubt, PATIENCE_S, undecided=True), to(service.url))
        healthy = send_all(SendTask(("slack",), notice_of(verdicts.HEALTHY), PATIENCE_S), to(service.url))

    assert [bool(one.skipped) for one in skipped] == [True, True, False]
    assert "--notify-undecided" in str(skipped[0].skipped)
    assert asked == [SinkOutcome("pagerduty")]
    assert service.heard[-1].json["payload"]["severity"] == "warning"
    assert healthy == [SinkOutcome("slack", skipped="nothing is wrong")]


def test_an_open_issue_of_the_same_fork_gets_a_comment_instead_of_a_second_issue() -> None:
    body = f"an older report\n<!-- forkpoint fork {NOTICE.fork} -->".encode()
    listed = b'[{"number": 3, "body": null}, {"number": 41, "body": %s}]' % json.dumps(body.decode()).encode()
    with web_service([Answer(body=b"[]"), Answer(201), Answer(body=listed), Answer(201), Answer(201)]) as service:
        environ = to(service.url)
        for more in ({}, {}, {"FORKPOINT_GITHUB_ISSUE": "7"}):
            assert deliver(BY_NAME["github"], NOTICE, environ | more, PATIENCE_S) == SinkOutcome("github")

    paths = [one.path.removeprefix(f"/services/{SECRET}/repos/team/training/issues") for one in service.heard]
    query = "?labels=forkpoint&state=open&per_page=100"
    assert paths == [query, "", query, "/41/comments", "/7/comments"]
    opened, comment = service.heard[1], service.heard[3]
    assert opened.headers["Authorization"] == "Bearer github-token-1"
    assert set(opened.json) == {"title", "body", "labels"}
    assert set(comment.json) == {"body"}
    assert comment.json["body"].rstrip().endswith(f"<!-- forkpoint fork {NOTICE.fork} -->")


def test_without_a_token_the_text_of_an_issue_is_written_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "issue.md"

    assert deliver(BY_NAME["github"], NOTICE, {"FORKPOINT_GITHUB_FILE": str(file)}, 5.0) == SinkOutcome("github")
    assert file.read_text().startswith("forkpoint: ")
    lost = deliver(BY_NAME["github"], NOTICE, {"FORKPOINT_GITHUB_FILE": str(tmp_path / "no" / "x")}, 5.0)
    assert "cannot be written" in str(lost.problem)
    assert "none of FORKPOINT_GITHUB_TOKEN" in str(deliver(BY_NAME["github"], NOTICE, {}, 5.0).problem)


def test_a_command_gets_the_verdict_on_standard_input_and_its_arguments_as_they_are(tmp_path: Path) -> None:
    code = "import json, sys; open(sys.argv[1], 'w').write(json.load(sys.stdin)['cause'] + sys.argv[2])"
    command = shlex.join([sys.executable, "-c", code, str(tmp_path / "told"), "; $(touch here) 'x'"])

    assert deliver(BY_NAME["command"], NOTICE, {"FORKPOINT_NOTIFY_COMMAND": command}, PATIENCE_S) == SinkOutcome(
        "command"
    )
    assert (tmp_path / "told").read_text() == f"{NOTICE.cause}; $(touch here) 'x'"


@for_each(
    ("command", "limit_s", "says"),
    [
        ("/nowhere/to/be/found", PATIENCE_S, "cannot be run"),
        (shlex.join([sys.executable, "-c", "import sys; sys.exit('no disk')"]), PATIENCE_S, "exit code 1 (no disk)"),
        ("sleep 3600", 0.3, "not done after 0 s, killed"),
        ("'", PATIENCE_S, "No closing quotation"),
    ],
)
def test_a_command_that_fails_or_hangs_is_said(command: str, limit_s: float, says: str) -> None:
    assert says in str(deliver(BY_NAME["command"], NOTICE, {"FORKPOINT_NOTIFY_COMMAND": command}, limit_s).problem)


def test_what_a_service_needs_and_has_not_is_named() -> None:
    assert deliver(BY_NAME["slack"], NOTICE, {}, 5.0) == SinkOutcome(
        "slack", "FORKPOINT_SLACK_URL is not set (the address of the incoming webhook)"
    )
    (outcome,) = send_all(SendTask(("carrier-pigeon",), NOTICE, 5.0), {})
    assert "no such service" in str(outcome.problem)


def test_a_dry_run_shows_everything_but_secrets() -> None:
    environ = to(f"https://hooks.example/services/{SECRET}")
    shown = render_all(SendTask(tuple(BY_NAME), NOTICE, 5.0), environ)

    heads = [line[4:].partition(":")[0] for line in shown.splitlines() if line.startswith("--- ")]
    assert heads == list(BY_NAME)
    assert KEY not in shown
    assert SECRET not in shown


# The process of its own.


def test_a_process_of_its_own_tells_and_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    with web_service() as service:
        for name, value in to(service.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("FORKPOINT_SLACK_URL", f"http://{unused_address()}/{SECRET}")
        monkeypatch.delenv("FORKPOINT_TEAMS_URL")
        sending = Sending(NOTICE, NotifySettings(("webhook", "teams"), 60.0))
        outcomes = sending.wait()
        sending.end()

    assert outcomes == (
        SinkOutcome("webhook"),
        SinkOutcome("teams", "FORKPOINT_TEAMS_URL is not set (the address that the Workflow shows)"),
    )
    assert len(service.heard) == 1


@for_each(
    ("program", "says"),
    [
        ("raise SystemExit(7)", "failed (exit code 7)"),
        ("import time; time.sleep(3600)", "not done after 0.1 s, given up"),
    ],
)
def test_a_process_that_dies_or_hangs_is_said_of_all_services(
    program: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(children, "_NOTIFIER", (sys.executable, "-c", program))
    monkeypatch.setattr(children, "_NOTIFY_START_S", 0.5 if "sleep" in program else PATIENCE_S)
    sending = Sending(NOTICE, NotifySettings(("slack", "teams"), 0.1))
    outcomes = sending.wait()
    sending.end()

    assert [one.sink for one in outcomes] == ["slack", "teams"]
    assert all(says in str(one.problem) for one in outcomes)


def test_names_are_split_and_counted_once() -> None:
    assert split_sinks(" slack, teams,,slack ") == ("slack", "teams")
    assert split_sinks(None) == ()
