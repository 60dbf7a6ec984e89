"""Is the next rank's process on this host still there? The only thing a guard can say of a rank that says nothing."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from forkpoint.guard.beat import RankState

_STATES = {"T": RankState.STOPPED, "t": RankState.STOPPED, "Z": RankState.GONE, "X": RankState.GONE}


@dataclass(frozen=True, slots=True)
class Identity:
    """A process, as its rank tells it once."""

    boot: str
    """Of its host and namespace of process numbers: host names are not unique, and containers share kernels."""
    pid: int
    began: str
    """In the kernel's count: numbers are used again."""

    def look_at(self) -> RankState:
        """Only where `boot` is this process's own."""
        state, began = _state_and_begin(self.pid)
        return RankState.GONE if began != self.began else _STATES.get(state, RankState.RUNNING)


def own_identity() -> Identity:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        boot += f"-{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        boot = ""
    return Identity(boot, os.getpid(), _state_and_begin(os.getpid())[1])


def encode(identity: Identity) -> bytes:
    return json.dumps(asdict(identity)).encode()


def decode(data: bytes) -> Identity | None:
    """None: not an identity."""
    try:
        raw = json.loads(data)
        return Identity(str(raw["boot"]), int(raw["pid"]), str(raw["began"]))
    except (ValueError, TypeError, KeyError):
        return None


def _state_and_begin(pid: int) -> tuple[str, str]:
    """Empty where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", ""
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return fields[0], fields[19]
