"""Ranks on this node, known by what their processes were started with, never by their names.

Loader and compile workers inherit a rank's environment, so of several processes with one RANK the topmost is the rank.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forkpoint.doctor.system import Process

_REAPERS = {"systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan", "conmon", "pause"}
"""Who takes in the children of a parent that died, under any number."""
_STARTS_RANKS = re.compile(
    r"python[\d.]*|\w*sh|torchrun|\w*mpi\w*|[op]rted|hydra\w*|slurmstepd|srun|ray|accelerate|deepspeed"
)
"""What process 1 of a container may be and have started ranks itself; anything else has only taken them in."""
_JOB = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
JobKey = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LocalRank:
    rank: int
    local_rank: int | None
    process: Process
    has_lost_launcher: bool
    """Its parent is one that takes in orphans: it was left behind, or is a worker of a rank that is gone."""


@dataclass(frozen=True, slots=True)
class LocalJob:
    """What of one job runs here."""

    key: JobKey
    ranks: tuple[LocalRank, ...]
    """By rank."""
    expected: int | None
    """How many ranks belong on this node, as their launcher told them."""

    @property
    def name(self) -> str:
        known = [f"{name}={value}" for name, value in zip(_JOB, self.key, strict=True) if value]
        return " ".join(known) or "a job without an id"


def key_of(environ: Mapping[str, str]) -> JobKey:
    return tuple(environ.get(name, "") for name in _JOB)


def local_jobs(processes: Iterable[Process]) -> tuple[LocalJob, ...]:
    """Jobs with a rank on this node, the oldest first."""
    by_pid = {process.pid: process for process in processes}
    found: defaultdict[JobKey, list[LocalRank]] = defaultdict(list)
    for process in by_pid.values():
        if process.environ is not None and _is_rank(process, by_pid):
            rank = int(process.environ["RANK"])
            found[key_of(process.environ)].append(
                LocalRank(rank, _number(process.environ, "LOCAL_RANK"), process, _is_adopted(by_pid.get(process.ppid)))
            )
    jobs = [LocalJob(key, _by_rank(ranks), _expected(ranks)) for key, ranks in found.items()]
    return tuple(sorted(jobs, key=lambda job: min(rank.process.started for rank in job.ranks)))


def _is_rank(process: Process, by_pid: Mapping[int, Process]) -> bool:
    """It says that it is one, and its parent does not say so, too."""
    environ = process.environ or {}
    parent = by_pid.get(process.ppid)
    above = (parent.environ or {}).get("RANK") if parent else None
    return environ.get("RANK", "").isascii() and environ.get("RANK", "").isdigit() and above != environ["RANK"]


def _is_adopted(parent: Process | None) -> bool:
    """A parent that we do not see is outside of this container, not gone: the kernel always gives orphans a new one."""
    if parent is None or not parent.command:
        return False
    name = posixpath.basename(parent.command[0]).removeprefix("-")
    return name in _REAPERS or (parent.pid == 1 and not _STARTS_RANKS.fullmatch(name))


def _by_rank(ranks: Iterable[LocalRank]) -> tuple[LocalRank, ...]:
    return tuple(sorted(ranks, key=lambda each: (each.rank, each.process.pid)))


def _expected(ranks: Iterable[LocalRank]) -> int | None:
    sizes = {_number(rank.process.environ or {}, "LOCAL_WORLD_SIZE") for rank in ranks}
    return sizes.pop() if len(sizes) == 1 else None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() else None
