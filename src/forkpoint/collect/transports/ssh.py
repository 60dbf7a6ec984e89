"""`ssh:HOST:PATH`: with the user's own configuration and keys; a host that asks for a password is skipped."""

import re
import shlex

from forkpoint.collect.script import SCRIPT
from forkpoint.collect.transports import Remote, Target, checked_path
from forkpoint.errors import UsageError

SSH_HOST = re.compile(r"(?:[A-Za-z0-9_][\w.-]{0,63}@)?[A-Za-z0-9_][\w.-]{0,252}", re.ASCII)
SSH_OPTIONS = ("-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")


def parse_ssh(place: str) -> Remote:
    """Raises UsageError."""
    host, _, path = place.removeprefix("ssh:").partition(":")
    if not SSH_HOST.fullmatch(host):
        raise UsageError(f"{place}: must be ssh:HOST:PATH")
    # ssh hands its command to a shell on the other side; this one is always the same.
    argv = ("ssh", *SSH_OPTIONS, "--", host, f"exec sh -c {shlex.quote(SCRIPT)}")
    return Remote(place, checked_path(place, path), lambda _: (Target(host, argv),))
