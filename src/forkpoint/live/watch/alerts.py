"""Alerts: the verdict's JSON to a webhook and to a command. A failed alert becomes a note, and the watch goes on."""

import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Timer
from urllib.parse import SplitResult, urlsplit

from forkpoint.errors import UsageError
from forkpoint.live.watch.rule import WatchNote
from forkpoint.model.verdict import Verdict
from forkpoint.report.escape import ascii_json
from forkpoint.report.json_report import render_json

_TRIES = 3
_LIMIT_S = 5.0
_PAUSE_S = 1.0
"""Doubled each time. With the tries this is 18 s at most, in which nothing is looked at."""
_COMMAND_LIMIT_S = 30.0
_RETRIED = (http.HTTPStatus.REQUEST_TIMEOUT, http.HTTPStatus.TOO_MANY_REQUESTS)


@dataclass(frozen=True, slots=True)
class Webhook:
    parts: SplitResult

    @property
    def place(self) -> str:
        """What may be printed: the rest of the address is often a secret."""
        return f"{self.parts.scheme}://{self.parts.netloc}"


@dataclass(frozen=True, slots=True)
class Alerts:
    webhook: Webhook | None = None
    command: tuple[str, ...] = ()
    pause_s: float = _PAUSE_S
    command_limit_s: float = _COMMAND_LIMIT_S

    def send(self, verdict: Verdict, seen: Sequence[str] = ()) -> tuple[WatchNote, ...]:
        """What could not be told. `seen`: lines about earlier incidents, which come beside the verdict's own fields."""
        document = render_json(verdict).encode()
        if seen:
            document = ascii_json(json.loads(document) | {"seen_before": list(seen)}, indent=2).encode()
        failed = [_post(self.webhook, document, self.pause_s)] if self.webhook else []
        failed += [_run(self.command, document, self.command_limit_s)] if self.command else []
        return tuple(note for note in failed if note)


def parse_webhook(url: str) -> Webhook:
    """Raises UsageError."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable, parts = False, SplitResult("", "", "", "", "")
    if not usable or "@" in parts.netloc or not url.isascii() or not url.isprintable() or " " in url:
        raise UsageError("--webhook must be an http or https address, without a user or password in it")
    return Webhook(parts)


def _post(webhook: Webhook, document: bytes, pause_s: float) -> WatchNote | None:
    why = ""
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(pause_s * 2 ** (attempt - 1))
        try:
            status = _post_once(webhook.parts, document)
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
            continue
        if 200 <= status < 300:
            return None
        why = f"status {status}"  # a redirect, too: it could lead anywhere
        if status < 500 and status not in _RETRIED:
            break
    return WatchNote("webhook", f"{webhook.place} could not be notified ({why})")


def _post_once(parts: SplitResult, document: bytes) -> int:
    """The status of the answer; what else it says is not read."""
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=_LIMIT_S)
    # That limit is for each piece of the answer; this one is for all of it.
    cut = Timer(_LIMIT_S, _cut_off, [connection])
    cut.start()
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Content-Type": "application/json", "User-Agent": "forkpoint"}
        connection.request("POST", target, document, headers)
        return connection.getresponse().status
    finally:
        cut.cancel()
        connection.close()


def _cut_off(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError):
        if connection.sock:
            connection.sock.shutdown(socket.SHUT_RDWR)


def _run(command: Sequence[str], document: bytes, limit_s: float) -> WatchNote | None:
    """No shell: what the verdict says is data on standard input and never part of a command line."""
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command, as given
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        return WatchNote("alert-command", f"{command[0]}: cannot be run ({error.strerror})")
    try:
        process.communicate(document, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return WatchNote("alert-command", f"{command[0]}: not done after {limit_s:g} s, ended")
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return WatchNote("alert-command", f"{command[0]}: exit code {process.returncode}") if process.returncode else None
