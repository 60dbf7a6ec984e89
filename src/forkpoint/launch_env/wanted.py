"""The settings that make a job leave evidence, for one release of torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from forkpoint.launch_env.recorder import (
    DUMP,
    ENTRIES,
    FIRST,
    NEW_NAMES,
    RECORDS_BY_DEFAULT,
    WRITES_BY_DEFAULT,
    buffer_names,
    prefix_names,
)
from forkpoint.launch_env.release import Release


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: str
    why: str
    """A short comment."""
    in_folder: bool = False
    """The value is a file name in the job's folder for dumps."""


def wanted(release: Release | None) -> tuple[Setting, ...]:
    """What to set, of what torch does not do by itself, under every launcher. A release that is not known gets every
    name that any release reads.
    """
    everywhere = (
        Setting("NCCL_DEBUG", "WARN", "NCCL's errors leave a line"),
        Setting("PYTHONFAULTHANDLER", "1", "a process that crashes leaves its stack"),
    )
    if release is not None and release < FIRST:
        return everywhere
    return (*recorder_settings(release), *everywhere)


def recorder_settings(release: Release | None) -> tuple[Setting, ...]:
    """Those of the recorder alone, for a release that has one. The older name of its size stays beside the newer one up to
    torch 2.10, whose pipe looks at that name alone; torch then warns once that it is deprecated.
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
