"""What can be seen of a process from outside: stacks of all its threads, by py-spy (and if that is forbidden, what forbids it); its
state and its GPU, from the kernel and NVML.

py-spy stops the process while it reads, for milliseconds (docs/attach.md has measurements), and changes nothing in it.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from forkpoint.doctor.live import live_system
from forkpoint.doctor.nvml import Gpu
from forkpoint.doctor.system import Unanswered
from forkpoint.evidence.stacks.read import looks_like_stacks
from forkpoint.evidence.text import clean
from forkpoint.gather.attach.jobs import owner_of
from forkpoint.live.processes import PROC, read_state, read_text

INSTALL = "pip install 'forkpoint[attach]'"
_LIMIT_S = 20.0
"""py-spy needs a third of a second."""
_SYS_PTRACE = 19
_SECCOMP_FILTER = "2"
_DENIED = re.compile(r"permission denied|operation not permitted|EPERM|EACCES", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class NoStacks:
    why: str


def find_py_spy() -> str | None:
    """The one beside this Python, even if its environment is not activated; else the one on PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.is_file() else shutil.which("py-spy")


def take_stacks(pid: int, py_spy: str, *, native: bool = False, limit_s: float = _LIMIT_S) -> bytes | NoStacks:
    """As JSON: it has whole paths. `native`: also the C frames below Python's, which takes longer: py-spy reads the symbols of
    all libraries. If it ends early, the kernel lets go of the process.
    """
    state = read_state(pid)
    # A stopped process cannot be stopped again, and need not be; its native frames cannot be read then.
    how = ["--nonblocking"] if state and state.is_stopped else ["--native"] if native else []
    argv = [py_spy, "dump", "--json", *how, "--pid", str(pid)]
    try:
        done = subprocess.run(argv, capture_output=True, timeout=limit_s, check=False)  # noqa: S603 - a fixed list
    except subprocess.TimeoutExpired:
        return NoStacks(f"py-spy was not done after {limit_s:.0f} s")
    except OSError as error:
        return NoStacks(f"py-spy cannot be run ({error.strerror})")
    if done.returncode == 0 and looks_like_stacks(done.stdout.decode("utf-8", "replace")):
        return done.stdout
    complaint = clean(done.stderr.decode("utf-8", "replace"))[:300]
    return NoStacks(why_forbidden(pid) if _DENIED.search(complaint) else f"py-spy: {complaint or 'no stack'}")


def why_forbidden(pid: int, proc: str = PROC) -> str:
    """What has to change so that this process may read that one, most likely reason first."""
    own = _status("self", proc)
    owner, user = owner_of(pid, proc), owner_of(os.getpid(), proc)
    has_capability = bool(int(own.get("CapEff", "0"), 16) >> _SYS_PTRACE & 1)
    if own.get("Seccomp") == _SECCOMP_FILTER and has_capability:
        return "this container's seccomp profile forbids ptrace; start it with --security-opt seccomp=unconfined"
    if has_capability:
        return "the kernel forbids ptrace although CAP_SYS_PTRACE is there; is a security module on?"
    if owner != user:
        return f"it belongs to {owner}: run forkpoint as {owner}, or with sudo"
    scope = _ptrace_scope(proc)
    if scope:
        return (
            f"kernel.yama.ptrace_scope is {scope}: run with sudo, or once: sudo sysctl kernel.yama.ptrace_scope=0; "
            "in a container: --cap-add SYS_PTRACE"
        )
    return (
        "ptrace is not allowed here; in a container: docker run --cap-add SYS_PTRACE, or "
        "securityContext.capabilities.add: [SYS_PTRACE] of the pod"
    )


def _ptrace_scope(proc: str) -> int:
    """0 if the kernel has no such setting."""
    told = read_text(Path(proc) / "sys/kernel/yama/ptrace_scope").strip()
    return int(told) if told.isdecimal() else 0


def _status(process: str, proc: str) -> dict[str, str]:
    lines = read_text(Path(proc) / process / "status").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


# ---------------------------------------------------------------------------------------------------------------------
# What the kernel and NVML know about the ranks' processes and GPUs. Nothing is sent to the job, and reading /proc is the only
# permission needed.


WORDS = {
    "R": "running",
    "S": "sleeping",
    "D": "waiting in the kernel, uninterruptible",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "dead",
    "X": "dead",
}
"""Other letters are those of kernel threads."""


class ProcessSample(msgspec.Struct, frozen=True):
    state: str
    """A letter, as in /proc; empty if the process is gone, `?` if it cannot be seen from here."""
    started: int = 0
    """In ticks since boot: together with the pid it identifies one process."""
    cpu_ticks: int = 0
    switches: int = 0
    """How often its main thread went to sleep. Unchanged between two looks if it slept all the time."""
    kernel: str = ""
    """The kernel function in which its main thread sleeps; empty if unknown."""
    threads: int = 0

    @property
    def is_alive(self) -> bool:
        return self.state not in ("", "Z", "X")


def sample_process(pid: int, proc: str = PROC) -> ProcessSample:
    """`pid` 0: a rank that is known only from its debug server."""
    if not pid:
        return ProcessSample("?")
    folder, state = Path(proc) / str(pid), read_state(pid)
    fields = read_text(folder / "stat").rpartition(")")[2].split()
    status = read_text(folder / "task" / str(pid) / "status")
    if state is None or not fields or not status:  # it ended meanwhile
        return ProcessSample("")
    switches = next((line.split()[1] for line in status.splitlines() if line.startswith("voluntary_ctxt")), "0")
    return ProcessSample(
        state=state.letter,
        started=state.started,
        cpu_ticks=int(fields[11]) + int(fields[12]),
        switches=int(switches),
        kernel=_kernel_function(folder),
        threads=int(fields[17]),
    )


def _kernel_function(folder: Path) -> str:
    name = read_text(folder / "wchan").strip()
    return "" if name == "0" else name


def sample_gpus() -> tuple[Gpu, ...] | str:
    """The GPUs, or why there are none. Takes a second or two: counters are read twice."""
    told = live_system().nvml()
    return told.why if isinstance(told, Unanswered) else told.gpus
