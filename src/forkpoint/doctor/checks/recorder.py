"""Will the flight recorder leave a dump of every rank, and where?"""

import posixpath
import re

from forkpoint.doctor.checks.settings import with_recorder
from forkpoint.doctor.live import mount_of
from forkpoint.doctor.report import CheckResult, bad, check, ok, skipped
from forkpoint.doctor.system import System, Unanswered
from forkpoint.knowledge.recorder import (
    DUMP,
    DYNAMIC,
    ENTRIES,
    OLD_BUFFER,
    PREFIX,
    Release,
    blocking_wait,
    buffer_names,
    dump_prefix,
    dumps_on_timeout,
    entries_kept,
    file_gate,
    parse_bool,
    prefix_names,
)

_WRITES_EMPTY = (Release(2, 7), Release(2, 10))


def _look_at_recorder_on(system: System, release: Release) -> CheckResult:
    """Is the flight recorder on?

    Releases 2.2 to 2.10 record nothing by default, and 2.7 to 2.10 write dump files anyway: empty ones, with a log line that
    claims 2000 entries.
    """
    kept = entries_kept(system.environ, release)
    details = (("entries", str(kept.value)),)
    by = kept.name or f"the default of torch {release}"
    if kept.value > 0:
        return ok(f"on: {kept.value} entries by {by}", *details)
    says = f"off: {by} is 0"
    if kept.name is None and _WRITES_EMPTY[0] <= release <= _WRITES_EMPTY[1]:
        says = f"off: torch {release} with nothing set writes dumps without entries"
    lines = " ".join(f"{name}={ENTRIES}" for name in buffer_names(release))
    return bad(says, f"export {lines}", *details)


RECORDER_ON = check("recorder-on", with_recorder(_look_at_recorder_on))


_TOO_MANY = 100_000
"""Five times the number whose dump took most of the available time in measurements."""
_TOO_FEW = 100
"""Less than one step of most jobs: what ranks did before they diverged is lost."""
_KB_PER_ENTRY = 0.8


def _look_at_recorder_buffer(system: System, release: Release) -> CheckResult:
    """Is the recorder's buffer of a size that helps?

    The size counts calls, not bytes. Guides that give it in bytes (2097152) ask for two million: about 0.8 kB of host
    memory each once full, and a dump that is not written in its 15 seconds (2,000 to 20,000 took 6 to 12 s on two cores).
    """
    kept = entries_kept(system.environ, release)
    details = (("entries", str(kept.value)),)
    if kept.value <= 0:
        return skipped("the recorder is off")
    if kept.value > _TOO_MANY:
        memory = kept.value * _KB_PER_ENTRY / 1024
        says = f"{kept.value} entries, not bytes: about {memory:.0f} MiB per rank, and too many to dump in time"
    elif kept.value < _TOO_FEW:
        says = f"{kept.value} entries are less than one step of most jobs"
    else:
        return ok(f"{kept.value} entries", *details)
    return bad(says, f"export {kept.name}={ENTRIES}, up to 20000 if a step issues many calls", *details)


RECORDER_BUFFER = check("recorder-buffer", with_recorder(_look_at_recorder_buffer))


def _look_at_recorder_dump(system: System, release: Release) -> CheckResult:
    """Will a timeout leave a dump?

    Three settings count: dump on timeout (off by default up to 2.6), the older name of the buffer size, which alone decides
    whether a file is written, and blocking wait, with which no watchdog runs that could write one.
    """
    dumps, gate = dumps_on_timeout(system.environ, release), file_gate(system.environ, release)
    if blocking := blocking_wait(system.environ):
        return bad(f"{blocking} is on: no watchdog runs, so no timeout leaves a dump", f"unset {blocking}")
    if not dumps.value:
        by = f"{dumps.name} says no" if dumps.name else f"off by default in torch {release}"
        return bad(f"no dump on timeout: {by}", f"export {DUMP}=1")
    if gate.value <= 0:
        by = f"{OLD_BUFFER}=0" if gate.name else f"torch {release} without {OLD_BUFFER}"
        return bad(f"no file is written: {by} disables the part that writes it", f"export {OLD_BUFFER}={ENTRIES}")
    return ok(f"a timeout leaves a dump, by {dumps.name or f'the default of torch {release}'}")


RECORDER_DUMP = check("recorder-dump", with_recorder(_look_at_recorder_dump))


def _look_at_recorder_path(system: System, release: Release) -> CheckResult:
    """Can dumps be written where torch will put them?

    Torch does not create the folder of a prefix that was set: the file then cannot be opened, and the log says so too late.
    """
    prefix = dump_prefix(system.environ, release)
    by = prefix.name or f"the default of torch {release}"
    details = (("prefix", prefix.value),)
    if not posixpath.isabs(prefix.value):
        return bad(
            f"{by} is {prefix.value!r}, which is not an absolute path: dumps go to each rank's working directory",
            f"export {by}=/shared/dumps/$JOB/{posixpath.basename(prefix.value) or 'rank_'}",
            *details,
        )
    folder = posixpath.dirname(prefix.value)
    if system.stat(folder) is None and prefix.name is not None:
        return bad(f"{folder} does not exist ({by}); torch does not create it", f"mkdir -p {folder}", *details)
    there = _nearest_existing(system, folder)
    if not system.may_write(there):
        return bad(f"{there} may not be written ({by})", f"ls -ld {there}, or choose another folder", *details)
    return ok(f"dumps go to {prefix.value}RANK, by {by}", *details)


def _nearest_existing(system: System, folder: str) -> str:
    """For torch's own folder: torch creates the missing part."""
    while system.stat(folder) is None and folder != "/":
        folder = posixpath.dirname(folder)
    return folder


RECORDER_PATH = check("recorder-path", with_recorder(_look_at_recorder_path))


_JOB_IDS = ("SLURM_JOB_ID", "SLURM_JOBID", "TORCHELASTIC_RUN_ID", "RAY_JOB_ID", "POD_UID", "HOSTNAME", "FORKPOINT_RUN")
_LOOKS_UNIQUE = re.compile(r"\d{4,}|[0-9a-f]{8,}|\$")
"""A job number, a date, part of a random name; or, in a script, an expansion."""
_HAS_DYNAMIC = Release(2, 10)


def _look_at_recorder_path_unique(system: System, release: Release) -> CheckResult:
    """Does each job write its dumps to its own folder?

    File names contain only the rank. A second job, or a second attempt, overwrites the first one's dumps; with a home on NFS
    two jobs of one user mix their ranks, and the mixture looks like an incident.
    """
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
    """In the path, or in what is mounted there: Kubernetes can mount a separate folder for each pod."""
    mounted = mount_of(posixpath.dirname(prefix), system.read(f"{system.proc}/mountinfo") or "").root
    values = [system.environ.get(name, "") for name in _JOB_IDS]
    return bool(_LOOKS_UNIQUE.search(prefix)) or any(value and value in f"{prefix} {mounted}" for value in values)


def _older_files(system: System, prefix: str) -> tuple[str, ...]:
    """Dumps from before the job's process was started. Without a job it is unknown who wrote them."""
    started = next((process.started for process in system.processes() if process.pid == system.job), None)
    folder, start = posixpath.split(prefix)
    names = [name for name in system.names(folder) if name.startswith(start) and name[len(start) :].isdigit()]
    facts = [(name, system.stat(posixpath.join(folder, name))) for name in names if started is not None]
    return tuple(name for name, fact in facts if fact and started is not None and fact.modified < started)


RECORDER_PATH_UNIQUE = check("recorder-path-unique", with_recorder(_look_at_recorder_path_unique))


_SHORT_LIVED = {
    "tmpfs": "memory: it is lost on reboot, and in a container with the pod",
    "ramfs": "memory: it is lost on reboot",
    "overlay": "the container's own layer: it is lost with the container",
    "aufs": "the container's own layer: it is lost with the container",
}
_SHARED_FILE_SYSTEMS = {
    "nfs",
    "nfs4",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "cephfs",
    "fuse.ceph",
    "wekafs",
    "9p",
    "virtiofs",
    "efs",
}


def _look_at_recorder_path_survives(system: System, release: Release) -> CheckResult:
    """Will the dumps still exist when somebody looks?

    A tmpfs is lost on reboot and counts as memory; a container's own layer is lost with the pod; default paths are often on
    one of them.
    """
    folder = posixpath.dirname(dump_prefix(system.environ, release).value)
    disk = system.disk(folder)
    if isinstance(disk, Unanswered):
        return skipped(f"the file system of {folder} is unknown: {disk.why}")
    details = (("file system", disk.kind),)
    if disk.kind in _SHORT_LIVED:
        name = prefix_names(release)[0]
        fix = f"point {name} to a disk that outlives the job: a shared file system or a mounted volume"
        return bad(f"{folder} is on {disk.kind}, {_SHORT_LIVED[disk.kind]}", fix, *details)
    reach = (
        "shared" if disk.kind in _SHARED_FILE_SYSTEMS else "of this node: fetch it from here, `forkpoint collect` does"
    )
    return ok(f"{folder} is on {disk.kind} at {disk.mount}, {reach}", *details)


RECORDER_PATH_SURVIVES = check("recorder-path-survives", with_recorder(_look_at_recorder_path_survives))


_TIMING_SWITCHES = ("TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING", "TORCH_NCCL_DESYNC_DEBUG", "NCCL_DESYNC_DEBUG")
_DEBUG_DETAIL = ("TORCH_DISTRIBUTED_DEBUG", "DETAIL")


def _look_at_recorder_timing(system: System, _: Release) -> CheckResult:
    """Was timing left on?

    TORCH_NCCL_ENABLE_TIMING=1 records when calls start on the GPU: without it a running kernel and a waiting one look the
    same. It is for one run that investigates this. In production its event queries can stall the watchdog when another thread
    holds a CUDA lock, and TORCH_DISTRIBUTED_DEBUG=DETAIL, which includes it, puts a barrier before every call.
    """
    on = [name for name in _TIMING_SWITCHES if parse_bool(system.environ.get(name, ""))]
    if system.environ.get(_DEBUG_DETAIL[0], "").upper() == _DEBUG_DETAIL[1]:
        on.append("=".join(_DEBUG_DETAIL))
    if not on:
        return ok("off, as it should be between investigations", ("timing", "off"))
    return bad(
        f"on by {', '.join(on)}: useful to find which GPU did not start, but not for production",
        f"unset {' '.join(name.partition('=')[0] for name in on)} when the question is answered",
        ("timing", "on"),
    )


RECORDER_TIMING = check("recorder-timing", with_recorder(_look_at_recorder_timing))


BYTES_PER_ENTRY = 1000
_RANKS_PER_NODE = 8


def _look_at_dump_space(system: System, release: Release) -> CheckResult:
    """Is there room for the dumps of all ranks of this node?

    Each rank writes up to its buffer's number of entries, about 1 kB each with stacks (measured: 0.2 to 0.8 kB). A node is
    assumed to have 8 ranks if LOCAL_WORLD_SIZE is not set.
    """
    folder = posixpath.dirname(dump_prefix(system.environ, release).value)
    entries = entries_kept(system.environ, release).value
    if entries <= 0:
        return skipped("the recorder is off")
    disk = system.disk(folder)
    if isinstance(disk, Unanswered):
        return skipped(disk.why)
    told = system.environ.get("LOCAL_WORLD_SIZE", "")
    ranks = int(told) if told.isdecimal() else _RANKS_PER_NODE
    needed = ranks * entries * BYTES_PER_ENTRY
    fix = f"free some of {disk.mount}, or let {PREFIX} point elsewhere"
    if disk.free < needed:
        return bad(f"{folder}: {disk.free >> 20} MiB are free, {ranks} dumps may need {needed >> 20}", fix)
    if disk.inodes and disk.inodes_free < ranks:
        return bad(f"{folder}: {disk.inodes_free} inodes are free on {disk.mount}, for {ranks} dumps", fix)
    return ok(f"{folder}: {disk.free >> 20} MiB are free, {ranks} dumps may need {max(1, needed >> 20)}")


DUMP_SPACE = check("dump-space", with_recorder(_look_at_dump_space))
