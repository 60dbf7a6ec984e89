"""The machine as checks see it. Every read goes through a System, so a recorded or broken machine can replace the real one."""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forkpoint.doctor.nvml import Nvml

# ---------------------------------------------------------------------------------------------------------------------
# The System.

COMMAND_LIMIT_S = 2.0
"""How long a program may take. nvidia-smi and anything on a dead file system can block forever."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer: a program is missing or too slow, a library is not installed."""

    why: str
    fix: str | None = None
    """What would help, if known: the command that installs a library."""


@dataclass(frozen=True, slots=True)
class Ran:
    returncode: int
    stdout: str
    stderr: str = ""


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    ppid: int
    uid: int
    state: str
    """One letter, as ps shows it: R, S, D, Z."""
    started: float
    """Seconds since the epoch."""
    command: tuple[str, ...]
    """Empty for a zombie or a kernel thread."""
    environ: Mapping[str, str] | None
    """Its initial environment without possible secrets; None if this user may not read it."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    size: int
    uid: int
    modified: float
    is_folder: bool


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of a path; if the path does not exist, of the nearest folder that does."""

    mount: str
    kind: str
    """As in mountinfo: ext4, tmpfs, nfs4, overlay."""
    total: int
    free: int
    """Bytes, for a user without privileges."""
    inodes: int
    """0 if the file system does not count them."""
    inodes_free: int


@dataclass(frozen=True, slots=True)
class Package:
    version: str
    requires: tuple[str, ...]
    """Lines of its metadata: `nvidia-nccl-cu12==2.27.5; platform_system == "Linux"`."""


@dataclass(frozen=True, slots=True)
class KernelClock:
    """What adjtimex(2) reports."""

    synchronised: bool
    max_error_s: float


class RunProgram(Protocol):
    def __call__(self, argv: Sequence[str], timeout_s: float = COMMAND_LIMIT_S) -> Ran | Unanswered: ...


@dataclass(frozen=True, slots=True)
class System:
    host: str
    environ: Mapping[str, str]
    """The job's if a job was named, else this command's own."""
    job: int | None
    """A process of the job that was named."""
    now: Callable[[], float]
    pause: Callable[[float], None]
    """Waits between two reads of a counter. A recorded machine switches to its later state instead."""
    read: Callable[[str], str | None]
    """The file as text, at most `live.READ_LIMIT` bytes; None if it is missing or may not be read."""
    names: Callable[[str], tuple[str, ...]]
    """Entries of a folder, sorted; empty if it is missing or may not be read."""
    link: Callable[[str], str | None]
    stat: Callable[[str], FileFacts | None]
    disk: Callable[[str], Disk | Unanswered]
    may_write: Callable[[str], bool]
    """Whether this user could write to this file or folder. Nothing is written to find out."""
    run: RunProgram
    """Each command runs once; all checks share its answer."""
    processes: Callable[[], tuple[Process, ...]]
    package: Callable[[str], Package | None]
    """An installed Python package, without importing it; the job's if a job was named."""
    clock: Callable[[], KernelClock | Unanswered]
    nvml: "Callable[[], Nvml | Unanswered]"

    @property
    def proc(self) -> str:
        """The folder in /proc of the job, or of this command if no job was named."""
        return f"/proc/{self.job}" if self.job is not None else "/proc/self"


# ---------------------------------------------------------------------------------------------------------------------
# Machines with parts replaced: for `--inject`, and for recorded machines.


def with_environ(system: System, changes: Mapping[str, str], without: Sequence[str] = ()) -> System:
    kept = {name: value for name, value in system.environ.items() if name not in without}
    return replace(system, environ={**kept, **changes})


def with_files(
    system: System, texts: Mapping[str, str | None], later: Mapping[str, str | None] | None = None
) -> System:
    """Adds files and their folders; None removes a file. `later`: their content after the first pause."""
    paused: list[float] = []

    def read(path: str) -> str | None:
        if paused and later is not None and path in later:
            return later[path]
        return texts[path] if path in texts else system.read(path)

    def names(path: str) -> tuple[str, ...]:
        below = {name for file in texts if (name := _first_name(path, file))}
        gone = {
            posixpath.basename(file) for file, text in texts.items() if text is None and posixpath.dirname(file) == path
        }
        return tuple(sorted({*system.names(path), *below} - gone))

    def pause(seconds: float) -> None:
        paused.append(seconds)
        if later is None:
            system.pause(seconds)

    return replace(system, read=read, names=names, pause=pause)


def _first_name(folder: str, file: str) -> str:
    """The entry of a folder on the way to a file; empty if the file is elsewhere."""
    start = folder.rstrip("/") + "/"
    return file[len(start) :].split("/", 1)[0] if file.startswith(start) else ""


def with_disk(system: System, path: str, disk: Disk) -> System:
    """For this path and all below it."""

    def ask(asked: str) -> Disk | Unanswered:
        return disk if asked == path or _first_name(path, asked) else system.disk(asked)

    return replace(system, disk=ask)


def with_outputs(system: System, outputs: Mapping[str, Ran | Unanswered]) -> System:
    """Outputs of programs, by the start of their command line: `chronyc` or `chronyc tracking`; the longest match wins."""

    def run(argv: Sequence[str], timeout_s: float = COMMAND_LIMIT_S) -> Ran | Unanswered:
        line = f"{' '.join(argv)} "
        known = [start for start in outputs if line.startswith(f"{start} ")]
        return outputs[max(known, key=len)] if known else system.run(argv, timeout_s)

    return replace(system, run=run)


def with_processes(system: System, processes: Sequence[Process]) -> System:
    return replace(system, processes=lambda: tuple(processes))


def with_packages(system: System, versions: Mapping[str, str | None], requires: tuple[str, ...] = ()) -> System:
    def package(name: str) -> Package | None:
        if name not in versions:
            return system.package(name)
        version = versions[name]
        return None if version is None else Package(version, requires)

    return replace(system, package=package)


def empty_machine(now: float = 1_790_000_000.0) -> System:
    """A machine on which nothing can be read: every check is skipped or bad here, none ok."""
    return System(
        host="node-0",
        environ={},
        job=None,
        now=lambda: now,
        pause=lambda _seconds: None,
        read=lambda _path: None,
        names=lambda _path: (),
        link=lambda _path: None,
        stat=lambda _path: None,
        disk=lambda path: Unanswered(f"{path}: no such file system"),
        may_write=lambda _path: False,
        run=_not_installed,
        processes=lambda: (),
        package=lambda _name: None,
        clock=lambda: Unanswered("adjtimex does not exist"),
        nvml=lambda: Unanswered("nvidia-ml-py is not installed"),
    )


def _not_installed(argv: Sequence[str], timeout_s: float = COMMAND_LIMIT_S) -> Unanswered:  # noqa: ARG001 - as Run asks
    return Unanswered(f"{argv[0]} is not installed")
