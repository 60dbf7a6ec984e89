"""The machine as checks see it. Every read goes through a System, so that a recorded machine can stand in for this one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from forkpoint.doctor.nvml import Nvml

COMMAND_LIMIT_S = 2.0
"""How long a program may take. nvidia-smi and anything on a dead file system can block for ever."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """What was asked could not be told: a program that is missing or too slow, a library that is not installed."""

    why: str
    fix: str | None = None
    """What would make it answer, where that is known: the line that installs a library."""


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
    """Empty for a zombie or a thread of the kernel."""
    environ: Mapping[str, str] | None
    """What it was started with, without what may be secret; None where this user may not read it."""


@dataclass(frozen=True, slots=True)
class FileFacts:
    size: int
    uid: int
    modified: float
    is_folder: bool


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system that holds a path, or would hold it: the nearest folder that exists counts."""

    mount: str
    kind: str
    """As in mountinfo: ext4, tmpfs, nfs4, overlay."""
    total: int
    free: int
    """Bytes, for a user without privileges."""
    inodes: int
    """0 where the file system does not count them."""
    inodes_free: int


@dataclass(frozen=True, slots=True)
class Package:
    version: str
    requires: tuple[str, ...]
    """Lines of its metadata: `nvidia-nccl-cu12==2.27.5; platform_system == "Linux"`."""


@dataclass(frozen=True, slots=True)
class KernelClock:
    """What adjtimex(2) tells."""

    synchronised: bool
    max_error_s: float


class RunProgram(Protocol):
    def __call__(self, argv: Sequence[str], timeout_s: float = COMMAND_LIMIT_S) -> Ran | Unanswered: ...


@dataclass(frozen=True, slots=True)
class System:
    host: str
    environ: Mapping[str, str]
    """The job's where a job was named, else what this command was started with."""
    job: int | None
    """A process of the job that was named."""
    now: Callable[[], float]
    pause: Callable[[float], None]
    """Wait between two reads of a counter. A recorded machine changes to its later state instead."""
    read: Callable[[str], str | None]
    """The file as text, at most `live.READ_LIMIT` bytes; None where it is not there or may not be read."""
    names: Callable[[str], tuple[str, ...]]
    """Entries of a folder, sorted; empty where it is not there or may not be read."""
    link: Callable[[str], str | None]
    stat: Callable[[str], FileFacts | None]
    disk: Callable[[str], Disk | Unanswered]
    may_write: Callable[[str], bool]
    """Could this user write this file or into this folder? Nothing is written to find out."""
    run: RunProgram
    """One answer for all checks: who asks again gets the first one."""
    processes: Callable[[], tuple[Process, ...]]
    package: Callable[[str], Package | None]
    """An installed Python package, without importing it; the job's where a job was named."""
    clock: Callable[[], KernelClock | Unanswered]
    nvml: "Callable[[], Nvml | Unanswered]"

    @property
    def proc(self) -> str:
        """The folder of /proc of the job, or of this command if no job was named."""
        return f"/proc/{self.job}" if self.job is not None else "/proc/self"
