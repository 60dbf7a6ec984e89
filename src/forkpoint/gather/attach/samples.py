"""What the kernel and NVML know about the ranks' processes and GPUs. Nothing is sent to the job, and reading /proc is the
only permission needed.
"""

from pathlib import Path

import msgspec

from forkpoint.doctor.live import live_system
from forkpoint.doctor.nvml import Gpu
from forkpoint.doctor.system import Unanswered
from forkpoint.live.processes import PROC, read_state

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
    if state is None:
        return ProcessSample("")
    try:
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        status = (folder / "task" / str(pid) / "status").read_text(errors="replace")
    except OSError:  # it ended meanwhile
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
    try:
        name = (folder / "wchan").read_text(errors="replace").strip()
    except OSError:
        return ""
    return "" if name == "0" else name


def sample_gpus() -> tuple[Gpu, ...] | str:
    """The GPUs, or why there are none. Takes a second or two: counters are read twice."""
    told = live_system().nvml()
    return told.why if isinstance(told, Unanswered) else told.gpus
