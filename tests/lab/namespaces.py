"""Ranks with a network namespace and an address each, joined by a bridge whose links have a rate, one of them a tenth.

Needs root, and a kernel with veth, bridges and the HTB queue; `missing` says what this machine lacks.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

NET = "10.213.0"


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


def missing() -> str | None:
    if os.geteuid() != 0:
        return "not root"
    try:
        with namespaces(f"fpq{os.getpid()}-", 2, (0, 1), "400mbit", "40mbit"):
            return None
    except (OSError, subprocess.CalledProcessError) as error:
        return str(getattr(error, "stderr", None) or error)


@contextmanager
def namespaces(name: str, count: int, slow: tuple[int, int], rate: str, slow_rate: str) -> Iterator[list[str]]:
    """Names of `count` namespaces; what goes between the two of `slow`, either way, has a rate of its own."""
    bridge, spaces = f"{name}b", [f"{name}{rank}" for rank in range(count)]
    try:
        _do("ip", "netns", "add", bridge)
        _do("ip", "-n", bridge, "link", "add", "br0", "type", "bridge")
        _do("ip", "-n", bridge, "link", "set", "br0", "up")
        for rank, space in enumerate(spaces):
            _add(space, bridge, rank)
            other = sum(slow) - rank if rank in slow else None
            _limit(space, rate, other, slow_rate)
        yield spaces
    finally:
        for space in [*spaces, bridge]:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def _add(space: str, bridge: str, rank: int) -> None:
    _do("ip", "netns", "add", space)
    _do("ip", "-n", bridge, "link", "add", f"v{rank}", "type", "veth", "peer", "name", "eth0", "netns", space)
    _do("ip", "-n", bridge, "link", "set", f"v{rank}", "master", "br0", "up")
    _do("ip", "-n", space, "addr", "add", f"{NET}.{rank + 1}/24", "dev", "eth0")
    _do("ip", "-n", space, "link", "set", "eth0", "up")
    _do("ip", "-n", space, "link", "set", "lo", "up")


def _limit(space: str, rate: str, slow_to: int | None, slow_rate: str) -> None:
    tc = ("ip", "netns", "exec", space, "tc")
    _do(*tc, "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1")
    _do(*tc, "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", "rate", rate, "burst", "64k")
    if slow_to is not None:
        at = ("dev", "eth0", "parent", "1:")
        _do(*tc, "class", "add", *at, "classid", "1:2", "htb", "rate", slow_rate, "burst", "16k")
        to = ("match", "ip", "dst", f"{NET}.{slow_to + 1}/32")
        _do(*tc, "filter", "add", *at, "protocol", "ip", "u32", *to, "flowid", "1:2")
