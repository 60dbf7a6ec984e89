"""Processes of this machine, read from /proc. They get no signals; a process that is gone gives None. And a free port for new ones."""

import os
import random
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = "/proc"
_MAX_ENVIRONMENT: Final = 1 << 20


def read_text(path: Path | str) -> str:
    """Empty if it cannot be read: the process is gone, or belongs to another user."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def read_link(path: Path | str) -> str:
    """Where it leads; empty likewise."""
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


@dataclass(frozen=True, slots=True)
class ProcessState:
    letter: str
    """`R` running, `S` and `D` waiting, `T` and `t` stopped, `Z` and `X` dead."""
    parent: int
    started: int
    """In ticks since boot. Pids are reused; a pid with its start time is unique."""

    @property
    def is_dead(self) -> bool:
        return self.letter in "ZX"

    @property
    def is_stopped(self) -> bool:
        return self.letter in "Tt"


def list_pids(proc: str = PROC) -> list[int]:
    try:
        return [int(entry.name) for entry in Path(proc).iterdir() if entry.name.isdecimal()]
    except OSError:
        return []


def read_state(pid: int) -> ProcessState | None:
    text = read_text(f"{PROC}/{pid}/stat")
    if not text:
        return None
    fields = text.rpartition(")")[2].split()  # the process name before it may contain any character, even brackets
    return ProcessState(fields[0], int(fields[1]), int(fields[19]))


def started_at(pid: int) -> float | None:
    """In seconds since 1970."""
    state, boot = read_state(pid), booted_at()
    return None if state is None or boot is None else boot + state.started / os.sysconf("SC_CLK_TCK")


def booted_at() -> int | None:
    lines = read_text(f"{PROC}/stat").splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("btime ")), None)


def read_environ(pid: int, proc: str = PROC) -> dict[str, str] | None:
    """None also for a process of another user."""
    try:
        with Path(f"{proc}/{pid}/environ").open("rb") as stream:
            raw = stream.read(_MAX_ENVIRONMENT)
    except OSError:
        return None
    pairs = (pair.partition("=") for pair in raw.decode(errors="replace").split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def read_host_id() -> str:
    """Differs between hosts and between pid namespaces: host names are not unique, and containers share a kernel. Empty
    where /proc does not say.
    """
    try:
        boot = Path(f"{PROC}/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{Path(f'{PROC}/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def free_port() -> int:
    """Not from the range that outgoing connections take their ports from (32768 and up on Linux): one of them could have it
    before the job binds it.
    """
    while True:
        port = random.randrange(15_000, 32_000)  # noqa: S311 no secret
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
