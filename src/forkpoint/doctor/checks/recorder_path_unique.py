"""Does each job write its dumps to a place of its own?

File names carry the rank and nothing else. A second job, or a second attempt, overwrites the first one's; with a home on
NFS two jobs of one user mix their ranks, and the mixture looks like an incident.
"""

import posixpath
import re

from forkpoint.doctor.check import Check, CheckResult, bad, ok
from forkpoint.doctor.mounts import mount_of
from forkpoint.doctor.overlay import with_environ
from forkpoint.doctor.settings import recording_release, with_torch
from forkpoint.doctor.system import System
from forkpoint.launch_env.recorder import DYNAMIC, OLD_PREFIX, PREFIX, dump_prefix, parse_bool, prefix_names
from forkpoint.launch_env.release import Release

_JOB_IDS = ("SLURM_JOB_ID", "SLURM_JOBID", "TORCHELASTIC_RUN_ID", "RAY_JOB_ID", "POD_UID", "HOSTNAME", "FORKPOINT_RUN")
_LOOKS_UNIQUE = re.compile(r"\d{4,}|[0-9a-f]{8,}|\$")
"""A job number, a date, part of a random name; or, in a script, what is yet to be computed."""
_HAS_DYNAMIC = Release(2, 10)


def look(system: System) -> CheckResult:
    release = recording_release(system)
    if isinstance(release, CheckResult):
        return release
    prefix = dump_prefix(system.environ, release)
    fix = f'mkdir -p "/shared/dumps/$JOB" && export {prefix_names(release)[0]}="/shared/dumps/$JOB/rank_"'
    if prefix.name is None:
        return bad(f"{prefix.value}RANK, torch's default, is the same for every job of this user", fix)
    if _rank_is_missing(system, release, prefix.value):
        return bad(f"{DYNAMIC} is on, so torch appends no rank: all ranks write one file", f"unset {DYNAMIC}")
    if not _names_the_job(system, prefix.value):
        return bad(f"nothing in {prefix.name}={prefix.value} names the job: the next one overwrites its dumps", fix)
    if older := _older_files(system, prefix.value):
        return bad(f"{len(older)} files are there from an earlier run, {older[0]} among them", fix)
    return ok(f"{prefix.value} is this job's own")


def _rank_is_missing(system: System, release: Release, prefix: str) -> bool:
    rank = system.environ.get("RANK")
    dynamic = release >= _HAS_DYNAMIC and parse_bool(system.environ.get(DYNAMIC, "")) is True
    return dynamic and (rank is None or not prefix.endswith(rank))


def _names_the_job(system: System, prefix: str) -> bool:
    """In the path, or in what is mounted there: Kubernetes can give each pod its own folder of a volume."""
    mounted = mount_of(posixpath.dirname(prefix), system.read(f"{system.proc}/mountinfo") or "").root
    values = [system.environ.get(name, "") for name in _JOB_IDS]
    return bool(_LOOKS_UNIQUE.search(prefix)) or any(value and value in f"{prefix} {mounted}" for value in values)


def _older_files(system: System, prefix: str) -> tuple[str, ...]:
    """Dumps that were there before the job's process was started. Without a job, who wrote them is not known."""
    started = next((process.started for process in system.processes() if process.pid == system.job), None)
    folder, start = posixpath.split(prefix)
    names = [name for name in system.names(folder) if name.startswith(start) and name[len(start) :].isdigit()]
    facts = [(name, system.stat(posixpath.join(folder, name))) for name in names if started is not None]
    return tuple(name for name, fact in facts if fact and started is not None and fact.modified < started)


def inject(system: System) -> System:
    return with_environ(with_torch(system, "2.13.0"), {}, without=(PREFIX, OLD_PREFIX))


CHECK = Check(
    name="recorder-path-unique",
    title="dump folder of the job's own",
    why="Dumps of two jobs under one name overwrite each other, or are read together as one incident.",
    look=look,
    inject=inject,
)
