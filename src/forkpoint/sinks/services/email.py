"""An email with the facts as text, and the report (Markdown) and the verdict (JSON) attached. TLS before any password."""

import smtplib
import ssl
from collections.abc import Mapping
from email.message import EmailMessage
from email.utils import formatdate, getaddresses, make_msgid

from forkpoint.sinks.notice import Notice
from forkpoint.sinks.sink import Sink, SinkRefused, SinkUnreachable, Variable

_TO = Variable("FORKPOINT_EMAIL_TO", "who gets it, separated by commas", required=True)
_FROM = Variable("FORKPOINT_EMAIL_FROM", "the sender (default: the first recipient)")
_HOST = Variable("FORKPOINT_SMTP_HOST", "the server, HOST or HOST:PORT (default port: 587)", required=True)
_TLS = Variable(
    "FORKPOINT_SMTP_TLS", "`starttls` (default), `tls` from the start (port 465), or `none` on this machine"
)
_USER = Variable("FORKPOINT_SMTP_USER", "to log in with")
_PASSWORD = Variable("FORKPOINT_SMTP_PASSWORD", "to log in with", secret=True)

_PORTS = {"starttls": 587, "tls": 465, "none": 25}
_TRY_S = 10.0
_MAX_SUBJECT = 200
_MAX_ATTACHED = 2 << 20
"""Bytes: servers reject large mails completely."""


def mail(notice: Notice, environ: Mapping[str, str]) -> EmailMessage:
    to = environ.get(_TO.name, "")
    message = EmailMessage()
    message["Subject"] = f"forkpoint: {notice.title}"[:_MAX_SUBJECT]
    message["From"] = environ.get(_FROM.name) or (getaddresses([to]) or [("", "")])[0][1]
    message["To"] = to
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid(domain="forkpoint.invalid")
    message["Auto-Submitted"] = "auto-generated"
    told = "\n".join([notice.title, "", notice.summary, "", *(f"{label:10}{text}" for label, text in notice.facts())])
    message.set_content(f"{told}\n")
    message.add_attachment(notice.markdown, subtype="markdown", filename="verdict.md")
    if len(notice.document) <= _MAX_ATTACHED:
        message.add_attachment(notice.document.encode(), "application", "json", filename="verdict.json")
    return message


def render(notice: Notice, environ: Mapping[str, str]) -> str:
    message = mail(notice, environ)
    body = message.get_body()
    assert body is not None  # it was just written
    attached = ", ".join(part.get_filename() or "" for part in message.iter_attachments())
    head = "\n".join(f"{name}: {message[name]}" for name in ("From", "To", "Subject"))
    return f"{head}\n\n{body.get_content()}\nattached: {attached}"


def send(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    message = mail(notice, environ)
    try:
        with _connect(environ, min(_TRY_S, limit_s)) as server:
            server.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        raise SinkRefused("the server accepts none of the addresses") from error
    except smtplib.SMTPResponseException as error:
        said = f"the server answers {error.smtp_code} {_text(error.smtp_error)}"
        raise (SinkUnreachable if 400 <= error.smtp_code < 500 else SinkRefused)(said) from error
    except ssl.SSLError as error:
        raise SinkRefused(f"no TLS connection ({error.reason or error})") from error
    except smtplib.SMTPNotSupportedError as error:
        raise SinkRefused(f"{error}") from error
    except (OSError, smtplib.SMTPException) as error:
        raise SinkUnreachable(str(error) or type(error).__name__) from error


def _connect(environ: Mapping[str, str], limit_s: float) -> smtplib.SMTP:
    kind = (environ.get(_TLS.name) or "starttls").lower()
    if kind not in _PORTS:
        raise SinkRefused(f"{_TLS.name} must be one of {', '.join(_PORTS)}")
    user, password = environ.get(_USER.name), environ.get(_PASSWORD.name)
    if password and kind == "none":
        raise SinkRefused(f"a password is not sent without TLS: set {_TLS.name} or leave the password out")
    host, _, port = environ[_HOST.name].partition(":")
    if port and not (port.isascii() and port.isdecimal()):
        raise SinkRefused(f"{_HOST.name} must be HOST or HOST:PORT")
    where, trusted = (host, int(port) if port else _PORTS[kind]), ssl.create_default_context()
    if kind == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(*where, timeout=limit_s, context=trusted)
    else:
        server = smtplib.SMTP(*where, timeout=limit_s)
    try:
        if kind == "starttls":
            server.starttls(context=trusted)
        if user and password:
            server.login(user, password)
    except BaseException:
        server.close()
        raise
    return server


def _text(said: bytes | str) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said


SINK = Sink("email", "an email, over TLS", (_TO, _HOST, _FROM, _USER, _PASSWORD, _TLS), render, send)
