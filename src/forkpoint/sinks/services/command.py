"""Runs a program of yours with the verdict's JSON on standard input. No shell: no part of a verdict is in a command line."""

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress

from forkpoint.sinks.notice import Notice
from forkpoint.sinks.sink import Sink, SinkRefused, Variable

_COMMAND = Variable("FORKPOINT_NOTIFY_COMMAND", "the program and its arguments, quoted as for a shell", required=True)


def render(notice: Notice, _environ: Mapping[str, str]) -> str:
    return notice.document


def send(notice: Notice, environ: Mapping[str, str], limit_s: float) -> None:
    """Run only once: a program that failed may have done half of its work."""
    try:
        command = shlex.split(environ[_COMMAND.name])
    except ValueError as error:
        raise SinkRefused(f"{_COMMAND.name}: {error}") from error
    if not command:
        raise SinkRefused(f"{_COMMAND.name} names no program")
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command, as given
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise SinkRefused(f"{command[0]}: cannot be run ({error.strerror})") from error
    try:
        _, said = process.communicate(notice.document.encode(), timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise SinkRefused(f"{command[0]}: not done after {limit_s:.0f} s, killed") from None
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        raise SinkRefused(f"{command[0]}: exit code {process.returncode}{f' ({last})' if last else ''}")


SINK = Sink("command", "the verdict as JSON to a program of yours", (_COMMAND,), render, send)
