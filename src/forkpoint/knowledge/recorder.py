"""What the flight recorder does with a job's variables in each release of torch, and what to set."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

# ---------------------------------------------------------------------------------------------------------------------
# Releases of torch, for settings that depend on them.

_VERSION = re.compile(r"v?(?P<major>\d{1,2})\.(?P<minor>\d{1,3})(?!\d)")


class Release(NamedTuple):
    """Compares as numbers: 2.10 comes after 2.9."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def parse_release(version: str) -> Release | None:
    """`2.13.0+cpu` is 2.13; None if it is not a version."""
    match = _VERSION.match(version.strip())
    return Release(int(match["major"]), int(match["minor"])) if match else None


# ---------------------------------------------------------------------------------------------------------------------
# What the flight recorder does with these variables in a given release of torch.
#
# From PyTorch's source for each release from 2.2 to 2.14 (FlightRecorder.cpp, ProcessGroupNCCL.cpp); docs/recorder.md says
# the same in prose. If a setting has two names, the first that is set wins.

T = TypeVar("T")

FIRST = Release(2, 2)
"""The first release that has a recorder."""
NEW_NAMES = Release(2, 8)
"""From here on torch reads TORCH_FR_* as well as the older names."""
BUFFER, OLD_BUFFER = "TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"
PREFIX, OLD_PREFIX = "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
DUMP, NEW_DUMP = "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_FR_DUMP_ON_TIMEOUT"
DYNAMIC = "TORCH_FR_DUMP_DYNAMIC_FILE_NAME"
ENTRIES = 2000
"""Torch's default since 2.11, enough for most jobs."""

RECORDS_BY_DEFAULT = Release(2, 11)
WRITES_BY_DEFAULT = Release(2, 7)
"""Sources disagree about 2.6, so it counts as a release that needs the setting."""
_FILE_GATE_OPEN = Release(2, 6)
_HOOKS = Release(2, 14)
_IN_HOME, _NEW_FILE_NAME, _XDG = Release(2, 7), Release(2, 9), Release(2, 11)
_BLOCKING = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
_YES, _NO = ("y", "yes", "1", "t", "true"), ("n", "no", "0", "f", "false")


class Effective(Struct, Generic[T], frozen=True):
    value: T
    name: str | None
    """The variable that sets it; None: torch's default."""


def buffer_names(release: Release) -> tuple[str, ...]:
    return (BUFFER, OLD_BUFFER) if release >= NEW_NAMES else (OLD_BUFFER,)


def prefix_names(release: Release) -> tuple[str, ...]:
    return (PREFIX, OLD_PREFIX) if release >= NEW_NAMES else (OLD_PREFIX,)


def entries_kept(environ: Mapping[str, str], release: Release) -> Effective[int]:
    """How many calls each rank remembers; 0 is off."""
    default = ENTRIES if release >= RECORDS_BY_DEFAULT else 0
    return _first_number(environ, buffer_names(release), default)


def file_gate(environ: Mapping[str, str], release: Release) -> Effective[int]:
    """The part of torch that writes the file reads only the older name; 0: no file is written."""
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
    """The variable that disables the watchdog, and with it every dump on timeout."""
    return next((name for name in _BLOCKING if parse_bool(environ.get(name, ""))), None)


def parse_bool(value: str) -> bool | None:
    """As torch parses it; None if it is empty, or a word that makes torch raise."""
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


# ---------------------------------------------------------------------------------------------------------------------
# The settings that make a job leave evidence, for one release of torch.


class Setting(Struct, frozen=True):
    name: str
    value: str
    why: str
    """A short comment."""
    in_folder: bool = False
    """The value is a file name in the job's folder for dumps."""


def wanted(release: Release | None) -> tuple[Setting, ...]:
    """What to set under every launcher, as far as torch does not do it by default. For an unknown release: all names that any
    release reads.
    """
    everywhere = (
        Setting("NCCL_DEBUG", "WARN", "NCCL's errors leave a line"),
        Setting("PYTHONFAULTHANDLER", "1", "a process that crashes leaves its stack"),
    )
    if release is not None and release < FIRST:
        return everywhere
    return (*recorder_settings(release), *everywhere)


def recorder_settings(release: Release | None) -> tuple[Setting, ...]:
    """Only the settings of the recorder, for a release that has one. Up to torch 2.10 the older name of its size is set, too,
    because the pipe reads only that one; torch then warns once that it is deprecated.
    """
    settings: list[Setting] = []
    if release is None or release < RECORDS_BY_DEFAULT:
        why = "entries, not bytes; off before torch 2.11 unless set"
        settings += _under_all_names(buffer_names(release or NEW_NAMES), str(ENTRIES), why)
    if release is None or release < WRITES_BY_DEFAULT:
        settings.append(Setting(DUMP, "1", "off before torch 2.7 unless set"))
    names = prefix_names(release)[:1] if release else prefix_names(NEW_NAMES)
    why = "this job's own; torch appends the rank"
    settings += _under_all_names(names, "rank_", why, in_folder=True)
    pipe = "write to pipe_RANK.pipe and the rank dumps while it runs"
    settings.append(Setting("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "pipe_", pipe, in_folder=True))
    return tuple(settings)


def _under_all_names(names: Sequence[str], value: str, why: str, *, in_folder: bool = False) -> list[Setting]:
    first, *older = names
    comment = "the same under its older name"
    return [Setting(first, value, why, in_folder), *(Setting(name, value, comment, in_folder) for name in older)]


# ---------------------------------------------------------------------------------------------------------------------
# Settings -> JSON, schema `forkpoint.env/1`.

ENV_SCHEMA = "forkpoint.env/1"


def render_json(launcher: str, release: Release | None, folder: str, settings: Sequence[Setting]) -> str:
    """`$JOB` in a value is a placeholder for the job's name: each job gets its own folder."""
    rows = [
        {
            "name": setting.name,
            "value": f"{folder.rstrip('/')}/$JOB/{setting.value}" if setting.in_folder else setting.value,
            "why": setting.why,
        }
        for setting in settings
    ]
    document = {
        "schema": ENV_SCHEMA,
        "launcher": launcher,
        "torch": str(release) if release else None,
        "folder": folder,
        "settings": rows,
    }
    return json.dumps(document, indent=2)
