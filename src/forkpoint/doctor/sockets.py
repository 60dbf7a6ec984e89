"""Addresses of this node and who listens on a port, from /proc/net: no socket is opened."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address

from forkpoint.doctor.system import Process, System

_LOCAL = re.compile(r"\|-- (?P<address>[\d.]+)\n\s+/32 host LOCAL")
_LISTENS = "0A"
_SOCKET = re.compile(r"socket:\[(?P<inode>\d+)\]")
_LAST_FIELD = 10
"""Fields of a line of /proc/net/tcp up to the inode."""

Address = IPv4Address | IPv6Address


def own_addresses(system: System) -> frozenset[Address]:
    trie = system.read("/proc/net/fib_trie") or ""
    table = (system.read("/proc/net/if_inet6") or "").splitlines()
    four = (ip_address(match["address"]) for match in _LOCAL.finditer(trie))
    six = (IPv6Address(int(line.split()[0], 16)) for line in table if line.split())
    return frozenset((*four, *six))


def listeners(system: System, port: int) -> frozenset[str]:
    """Inodes of the sockets that listen on a port, on any address."""
    return frozenset(_listening(system, "/proc/net/tcp", port)) | frozenset(_listening(system, "/proc/net/tcp6", port))


def _listening(system: System, table: str, port: int) -> Iterator[str]:
    for line in (system.read(table) or "").splitlines()[1:]:
        fields = line.split(None, _LAST_FIELD)
        if len(fields) >= _LAST_FIELD and fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def owners(system: System, inodes: frozenset[str]) -> tuple[Process, ...]:
    """Processes that hold one of these sockets. Of other users' processes it cannot be seen."""
    return tuple(process for process in system.processes() if _holds(system, process.pid, inodes))


def _holds(system: System, pid: int, inodes: frozenset[str]) -> bool:
    folder = f"/proc/{pid}/fd"
    links = (system.link(f"{folder}/{name}") for name in system.names(folder))
    found = (_SOCKET.fullmatch(link) for link in links if link)
    return any(match is not None and match["inode"] in inodes for match in found)
