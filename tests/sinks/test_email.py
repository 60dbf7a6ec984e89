"""Email through a real SMTP server with TLS, and all that such servers refuse."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

from forkpoint.sinks import sink as sinks
from forkpoint.sinks.services.email import SINK
from forkpoint.sinks.sink import SinkOutcome, deliver
from looping import for_each
from sinks.stand_ins import certificate, notice_of, silent_service, unused_address

NOTICE = notice_of(seen=("the same fork was seen once before",))
PATIENCE_S = 300.0
PASSWORD = "hunter2-hunter2"


class Inbox:
    def __init__(self, answers: list[str]) -> None:
        self.answers = answers
        self.mails: list[Any] = []

    async def handle_DATA(self, _server: object, _session: object, envelope: Any) -> str:  # noqa: N802 - its name there
        answer = self.answers.pop(0) if self.answers else "250 OK"
        if answer.startswith("250"):
            self.mails.append(envelope)
        return answer


@contextmanager
def mail_server(answers: list[str], tls: ssl.SSLContext | None, **options: Any) -> Iterator[tuple[str, Inbox]]:
    inbox = Inbox(answers)

    def check(_server: SMTP, _session: object, _envelope: object, _mechanism: str, data: LoginPassword) -> AuthResult:
        return AuthResult(success=data.password == PASSWORD.encode(), handled=False)

    told = {"tls_context": tls, "require_starttls": True, "authenticator": check} if tls else {}
    controller = Controller(inbox, hostname="127.0.0.1", port=0, **told, **options)
    # It connects to itself to see that it is up, at the port it was told: 0 is none.
    controller.port = int(unused_address().rpartition(":")[2])
    controller.start()
    try:
        yield f"127.0.0.1:{controller.port}", inbox
    finally:
        controller.stop()


def to(host: str, **more: str) -> dict[str, str]:
    return {"FORKPOINT_SMTP_HOST": host, "FORKPOINT_EMAIL_TO": "On Call <oncall@example.org>, b@example.org", **more}


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    monkeypatch.setattr(sinks, "_PAUSE_S", 0.01)
    context, trusted = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    return context


def test_a_mail_comes_over_starttls_with_login_and_all_its_parts(tls: ssl.SSLContext) -> None:
    login = {"FORKPOINT_SMTP_USER": "forkpoint", "FORKPOINT_SMTP_PASSWORD": PASSWORD}
    with mail_server(["451 try later"], tls) as (host, inbox):
        assert deliver(SINK, NOTICE, to(host, **login), PATIENCE_S) == SinkOutcome("email")

    (envelope,) = inbox.mails
    mail = message_from_bytes(envelope.content, policy=default)
    assert envelope.rcpt_tos == ["oncall@example.org", "b@example.org"]
    assert mail["From"] == "oncall@example.org"
    assert NOTICE.headline[:40] in mail["Subject"]
    assert "the same fork was seen once before" in mail.get_body().get_content()
    assert [part.get_filename() for part in mail.iter_attachments()] == ["verdict.md", "verdict.json"]


def test_a_wrong_password_is_refused_once_and_not_said(tls: ssl.SSLContext) -> None:
    login = {"FORKPOINT_SMTP_USER": "forkpoint", "FORKPOINT_SMTP_PASSWORD": "wrong-password"}
    with mail_server([], tls) as (host, inbox):
        outcome = deliver(SINK, NOTICE, to(host, **login), PATIENCE_S)

    assert inbox.mails == []
    assert "the server answers 535" in str(outcome.problem)
    assert "wrong-password" not in str(outcome)


def test_servers_without_tls_or_trust_get_nothing(tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {"FORKPOINT_SMTP_USER": "forkpoint", "FORKPOINT_SMTP_PASSWORD": PASSWORD}
    with mail_server([], None) as (host, inbox):
        no_tls = deliver(SINK, NOTICE, to(host), PATIENCE_S)
        no_secret = deliver(SINK, NOTICE, to(host, FORKPOINT_SMTP_TLS="none", **secret), PATIENCE_S)
        assert inbox.mails == []
        local = deliver(SINK, NOTICE, to(host, FORKPOINT_SMTP_TLS="none"), PATIENCE_S)
    monkeypatch.delenv("SSL_CERT_FILE")
    with mail_server([], tls) as (host, _):
        no_trust = deliver(SINK, NOTICE, to(host), PATIENCE_S)

    assert "STARTTLS" in str(no_tls.problem)
    assert "a password is not sent without TLS" in str(no_secret.problem)
    assert local == SinkOutcome("email")
    assert "no TLS connection (CERTIFICATE_VERIFY_FAILED)" in str(no_trust.problem)


@for_each(
    ("environ", "says"),
    [
        ({"FORKPOINT_SMTP_TLS": "ssl"}, "must be one of starttls, tls, none"),
        ({"FORKPOINT_SMTP_HOST": "mail:smtp"}, "must be HOST or HOST:PORT"),
        ({}, "Connection refused, tried 4 times"),
    ],
)
def test_what_is_wrong_is_said(environ: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "_PAUSE_S", 0.01)

    assert says in str(deliver(SINK, NOTICE, to(unused_address()) | environ, PATIENCE_S).problem)


def test_a_server_that_says_nothing_costs_its_limit() -> None:
    with silent_service() as url:
        outcome = deliver(SINK, NOTICE, to(url.split("/")[2]), 0.5)

    assert "timed out" in str(outcome.problem)
