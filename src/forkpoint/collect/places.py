"""Parses a place that the user named, by its prefix."""

from forkpoint.collect.transports import Remote
from forkpoint.collect.transports.kubectl import parse_kubectl
from forkpoint.collect.transports.srun import parse_srun
from forkpoint.collect.transports.ssh import parse_ssh

_PARSERS = {"ssh:": parse_ssh, "srun:": parse_srun, "kubectl:": parse_kubectl}


def parse_remote(place: str) -> Remote | None:
    """None: a path of this machine, or an address for fsspec. Raises UsageError."""
    parse = next((parse for front, parse in _PARSERS.items() if place.startswith(front)), None)
    return parse(place) if parse else None
