"""Nodes by name, over ssh: with the user's own configuration and keys; a host that asks for a password is not waited for."""

import shlex
from collections.abc import Sequence

from forkpoint.cluster.commands import Commands
from forkpoint.collect.transports.ssh import _HOST, _OPTIONS
from forkpoint.errors import UsageError


def open_ssh(hosts: Sequence[str], node_timeout_s: float, python: str) -> Commands:
    """Raises UsageError."""
    if not hosts:
        raise UsageError("--cluster ssh needs --hosts a,b,c or --hosts-file FILE")
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise UsageError(f"{host}: is no name of a host, as in node1 or user@node1")
    return Commands({host: lambda script, host=host: _argv(host, script) for host in hosts}, node_timeout_s, python)


def _argv(host: str, script: str) -> tuple[str, ...]:
    # ssh hands its command to a shell on the other side.
    return ("ssh", *_OPTIONS, "--", host, f"exec sh -c {shlex.quote(script)}")
