"""What the flight recorder will do with these variables under this release of torch.

Read in PyTorch's source at each release from 2.2 to 2.14 (FlightRecorder.cpp, ProcessGroupNCCL.cpp); docs/recorder.md
says the same in prose. Of two names for one thing the first that is set wins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from forkpoint.launch_env.release import Release

T = TypeVar("T")

FIRST = Release(2, 2)
"""The first release that has a recorder."""
NEW_NAMES = Release(2, 8)
"""From here on torch reads TORCH_FR_*, and still the older names."""
BUFFER, OLD_BUFFER = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
PREFIX, OLD_PREFIX = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
DUMP, NEW_DUMP = "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT"
DYNAMIC = "TORCH_FR_DUMP_DYNAMIC_FILE_NAME"
ENTRIES = 2000
"""Torch's own size since 2.11, and enough for most jobs."""

RECORDS_BY_DEFAULT = Release(2, 11)
WRITES_BY_DEFAULT = Release(2, 7)
"""Readings of 2.6 differ, so it counts as one that has to be told."""
_FILE_GATE_OPEN = Release(2, 6)
_HOOKS = Release(2, 14)
_IN_HOME, _NEW_FILE_NAME, _XDG = Release(2, 7), Release(2, 9), Release(2, 11)
_BLOCKING = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
_YES, _NO = ("y", "yes", "1", "t", "true"), ("n", "no", "0", "f", "false")


@dataclass(frozen=True, slots=True)
class Effective(Generic[T]):
    value: T
    name: str | None
    """The variable that says so; None where it is torch's default."""


def buffer_names(release: Release) -> tuple[str, ...]:
    return (BUFFER, OLD_BUFFER) if release >= NEW_NAMES else (OLD_BUFFER,)


def prefix_names(release: Release) -> tuple[str, ...]:
    return (PREFIX, OLD_PREFIX) if release >= NEW_NAMES else (OLD_PREFIX,)


def entries_kept(environ: Mapping[str, str], release: Release) -> Effective[int]:
    """How many calls each rank remembers; 0 is off."""
    default = ENTRIES if release >= RECORDS_BY_DEFAULT else 0
    return _first_number(environ, buffer_names(release), default)


def file_gate(environ: Mapping[str, str], release: Release) -> Effective[int]:
    """The part of torch that writes the file looks at the older name alone; 0 is no file."""
    return _first_number(environ, (OLD_BUFFER,), ENTRIES if release >= _FILE_GATE_OPEN else 0)


def dumps_on_timeout(environ: Mapping[str, str], release: Release) -> Effective[bool]:
    names = (NEW_DUMP, DUMP) if release >= _HOOKS else (DUMP,)
    for name in names:
        if (value := parse_bool(environ.get(name, ""))) is not None:
            return Effective(value, name)
    return Effective(release >= WRITES_BY_DEFAULT, None)


def dump_prefix(environ: Mapping[str, str], release: Release) -> Effective[str]:
    """Path of the dump without the rank at its end."""
    for name in prefix_names(release):
        if name in environ:
            return Effective(environ[name], name)
    if release < _IN_HOME:
        return Effective("/tmp/nccl_trace_rank_", None)  # noqa: S108 - torch's choice, not ours
    home = f"{environ.get('HOME', '~')}/.cache"
    cache = environ.get("XDG_CACHE_HOME") or home if release >= _XDG else home
    file = "comm_lib_trace_rank_" if release >= _NEW_FILE_NAME else "nccl_trace_rank_"
    return Effective(f"{cache}/torch/{file}", None)


def blocking_wait(environ: Mapping[str, str]) -> str | None:
    """The variable that takes the watchdog away, and with it every dump on timeout."""
    return next((name for name in _BLOCKING if parse_bool(environ.get(name, ""))), None)


def parse_bool(value: str) -> bool | None:
    """As torch reads it; None for a word at which torch raises, and for none."""
    word = value.casefold()
    return True if word in _YES else False if word in _NO else None


def parse_number(value: str) -> int | None:
    word = value.strip()
    return int(word) if word.removeprefix("-").isascii() and word.removeprefix("-").isdigit() else None


def _first_number(environ: Mapping[str, str], names: Sequence[str], default: int) -> Effective[int]:
    for name in names:
        if (value := parse_number(environ.get(name, ""))) is not None:
            return Effective(value, name)
    return Effective(default, None)
