"""This machine as a System: /proc, /sys, installed packages, and programs with a time limit. Nothing is changed."""

import ctypes
import os
import re
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from forkpoint.doctor.system import (
    COMMAND_LIMIT_S,
    Disk,
    FileFacts,
    KernelClock,
    Package,
    Process,
    Ran,
    RunProgram,
    System,
    Unanswered,
)
from forkpoint.errors import UsageError
from forkpoint.knowledge.variables import may_be_shown
from forkpoint.live.processes import booted_at, list_pids, read_environ, read_link, read_state

if TYPE_CHECKING:
    from forkpoint.doctor.nvml import Nvml

# ---------------------------------------------------------------------------------------------------------------------
# Each query of the machine runs once, even if several checks need it at the same time.

P = ParamSpec("P")
T = TypeVar("T")


def once(function: Callable[P, T]) -> Callable[P, T]:
    """Like functools.cache, but threads that ask at the same time wait for one answer."""
    locks: defaultdict[object, Lock] = defaultdict(Lock)
    answers: dict[object, T] = {}
    entry = Lock()

    def ask(*args: P.args, **kwargs: P.kwargs) -> T:
        key = (args, tuple(kwargs.items()))
        with entry:
            lock = locks[key]
        with lock:
            if key not in answers:
                answers[key] = function(*args, **kwargs)
            return answers[key]

    return ask


# ---------------------------------------------------------------------------------------------------------------------
# The file system of a path, from /proc/PID/mountinfo.

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    point: str
    kind: str
    root: str
    """The part of the file system that is mounted: it may be a folder of a volume."""


def mount_of(path: str, mountinfo: str) -> Mount:
    """Of two file systems mounted at one place, the later hides the earlier."""
    found = Mount("/", "unknown", "/")
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        parts = fields.split()
        if len(parts) < 5 or not rest:
            continue
        root, point = (_OCTAL.sub(lambda octal: chr(int(octal[1], 8)), part) for part in parts[3:5])
        if len(point) >= len(found.point) and (path == point or path.startswith(point.rstrip("/") + "/")):
            found = Mount(point, rest.split()[0], root)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Installed Python packages, from their metadata: nothing is imported or run.

_IN_MAPS = re.compile(r"\s(/\S+?)/torch/lib/lib\S+$", re.MULTILINE)
_METADATA = re.compile(r"(?P<name>[A-Za-z0-9._]+)-(?P<version>[0-9][^-]*)\.dist-info", re.ASCII)
_REQUIRES = "Requires-Dist: "


def folders_of_environment(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where the next job's Python looks: the active environment, then the one this command runs in."""
    active = [environ[name] for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environ.get(name)]
    below = [str(folder) for root in active for folder in Path(root).glob("lib/python3*/site-packages")]
    return tuple(dict.fromkeys((*below, *(path for path in sys.path if path.endswith("-packages")))))


def folders_of_process(maps: str) -> tuple[str, ...]:
    """Where a running process has its torch, from its mapped libraries (/proc/PID/maps)."""
    return tuple(dict.fromkeys(_IN_MAPS.findall(maps)))


def find_package(folders: Sequence[str], name: str) -> Package | None:
    """From the first folder that has it."""
    return next((found for folder in folders if (found := _find(Path(folder), name))), None)


def _find(folder: Path, name: str) -> Package | None:
    wanted = name.replace("-", "_").casefold()
    try:
        for entry in folder.iterdir():
            match = _METADATA.fullmatch(entry.name)
            if match and match["name"].replace(".", "_").casefold() == wanted:
                return Package(match["version"], _requires(entry / "METADATA"))
    except OSError:
        return None
    return None


def _requires(metadata: Path) -> tuple[str, ...]:
    try:
        lines = metadata.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(line.removeprefix(_REQUIRES) for line in lines if line.startswith(_REQUIRES))


# ---------------------------------------------------------------------------------------------------------------------
# The System.

READ_LIMIT = 4 << 20
"""No file that a check reads is longer; a kernel log is truncated here."""
OUTPUT_LIMIT = 16 << 20
"""The end of a program's output is kept: for a log that is what counts."""
_ALSO_KEPT = frozenset({"HOME", "XDG_CACHE_HOME", "TMPDIR", "VIRTUAL_ENV", "CONDA_PREFIX", "P2P_LEVEL", "POD_UID"})
"""What checks need besides the variables that may be shown to anyone."""

_KILL_WAIT_S = 0.2
_STA_UNSYNC = 0x0040
_ROOTED = ("/proc/", "/sys/")
"""The same in every container; other paths are looked up in the job's own root."""


def live_system(job: int | None = None) -> System:
    """The machine, with the environment of the job's process if one is named. Raises UsageError if there is none."""
    processes = once(_processes)
    if job is not None:
        job = _rank_below(job, processes())
    environ = os.environ if job is None else _environ_of_job(job)
    see = _root_of(job)
    read = partial(_read, see)
    run_once = once(_run)

    def ask(argv: Sequence[str], timeout_s: float = COMMAND_LIMIT_S) -> Ran | Unanswered:
        return run_once(tuple(argv), timeout_s)

    return System(
        host=socket.gethostname(),
        environ=_kept(environ),
        job=job,
        now=time.time,
        pause=time.sleep,
        read=read,
        names=partial(_names, see),
        link=lambda path: read_link(path) or None,
        stat=partial(_stat, see),
        disk=partial(_disk, see, "self" if job is None else str(job)),
        may_write=partial(_may_write, see),
        run=ask,
        processes=processes,
        package=_packages(job, environ, read),
        clock=_clock,
        nvml=once(partial(_nvml, ask)),
    )


def _rank_below(pid: int, processes: Sequence[Process]) -> int:
    """The process itself if it is a rank; else (a launcher was named) the first rank among its descendants."""
    by_pid = {process.pid: process for process in processes}
    wanted = [pid]
    for parent in wanted:
        process = by_pid.get(parent)
        if process is not None and process.environ is not None and "RANK" in process.environ:
            return parent
        wanted += [process.pid for process in processes if process.ppid == parent]
    return pid


def _environ_of_job(pid: int) -> Mapping[str, str]:
    environ = read_environ(pid)
    if environ is None:
        raise UsageError(f"--job {pid}: its environment cannot be read; name a running process of your own job")
    return environ


def _root_of(job: int | None) -> Callable[[str], str]:
    """Maps a path of the job to where it is seen from here: a container has its own files."""
    inside = job is not None and read_link(f"/proc/{job}/ns/mnt") not in {"", read_link("/proc/self/ns/mnt")}
    if not inside:
        return lambda path: path
    return lambda path: path if path.startswith(_ROOTED) else f"/proc/{job}/root{path}"


def _read(see: Callable[[str], str], path: str) -> str | None:
    try:
        with Path(see(path)).open("rb") as file:
            return file.read(READ_LIMIT).decode(errors="replace")
    except OSError:
        return None


def _names(see: Callable[[str], str], path: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(entry.name for entry in Path(see(path)).iterdir()))
    except OSError:
        return ()


def _stat(see: Callable[[str], str], path: str) -> FileFacts | None:
    try:
        found = Path(see(path)).stat()
    except OSError:
        return None
    return FileFacts(found.st_size, found.st_uid, found.st_mtime, is_folder=Path(see(path)).is_dir())


def _disk(see: Callable[[str], str], process: str, path: str) -> Disk | Unanswered:
    there = path
    while not Path(see(there)).exists() and there != "/":
        there = str(Path(there).parent)
    try:
        found = os.statvfs(see(there))
        mounts = Path(f"/proc/{process}/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return Unanswered(f"{path}: {error.strerror}")
    mount = mount_of(there, mounts)
    return Disk(
        mount.point,
        mount.kind,
        found.f_blocks * found.f_frsize,
        found.f_bavail * found.f_frsize,
        found.f_files,
        found.f_favail,
    )


def _may_write(see: Callable[[str], str], path: str) -> bool:
    return os.access(see(path), os.W_OK)


def _run(argv: tuple[str, ...], timeout_s: float) -> Ran | Unanswered:
    try:
        process = subprocess.Popen(  # noqa: S603 - fixed programs; arguments are never a shell's
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        return Unanswered(f"{argv[0]} is not installed")
    except OSError as error:
        return Unanswered(f"{argv[0]} cannot be started: {error.strerror}")
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return Unanswered(f"{argv[0]} did not answer in {timeout_s:g} s")
    out, err = (stream[-OUTPUT_LIMIT:].decode(errors="replace") for stream in (out, err))
    return Ran(process.returncode, out, err)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """A program stuck in the driver ignores SIGKILL; the doctor does not wait for it."""
    process.kill()
    try:
        process.communicate(timeout=_KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        return


def _processes() -> tuple[Process, ...]:
    boot = booted_at()
    if boot is None:
        return ()
    ticks = os.sysconf("SC_CLK_TCK")
    return tuple(process for pid in sorted(list_pids()) if (process := _process(pid, boot, ticks)))


def _process(pid: int, boot: int, ticks: int) -> Process | None:
    """None if it ended meanwhile."""
    folder, state, environ = Path(f"/proc/{pid}"), read_state(pid), read_environ(pid)
    try:
        command = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0")
        uid = folder.stat().st_uid
    except OSError:
        return None
    if state is None:
        return None
    return Process(
        pid=pid,
        ppid=state.parent,
        uid=uid,
        state=state.letter,
        started=boot + state.started / ticks,
        command=tuple(command.split("\0")) if command else (),
        environ=None if environ is None else _kept(environ),
    )


def _kept(environ: Mapping[str, str]) -> dict[str, str]:
    """Other variables can contain secrets and are dropped as soon as they are read."""
    return {name: value for name, value in environ.items() if name in _ALSO_KEPT or may_be_shown(name)}


def _packages(
    job: int | None, environ: Mapping[str, str], read: Callable[[str], str | None]
) -> Callable[[str], Package | None]:
    folders = folders_of_environment(environ) if job is None else folders_of_process(read(f"/proc/{job}/maps") or "")
    return once(partial(find_package, folders))


class _Timex(ctypes.Structure):
    """The start of struct timex; the rest is padding that the kernel may fill."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("room", ctypes.c_long * 32),
    )


def _clock() -> KernelClock | Unanswered:
    """Without a mode adjtimex changes nothing and needs no privilege."""
    try:
        adjtimex = ctypes.CDLL(None).adjtimex
    except (AttributeError, OSError):
        return Unanswered("adjtimex does not exist: not Linux")
    told = _Timex()
    if adjtimex(ctypes.byref(told)) < 0:
        return Unanswered("adjtimex was refused")
    return KernelClock(synchronised=not told.status & _STA_UNSYNC, max_error_s=told.maxerror / 1e6)


def _nvml(run: RunProgram) -> "Nvml | Unanswered":
    from forkpoint.doctor.nvml import read_nvml  # noqa: PLC0415 - only checks of GPUs pay for the library

    return read_nvml(run)
