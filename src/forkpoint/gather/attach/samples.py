"""What the kernel and NVML say of the ranks' processes and GPUs. Nothing is sent to the job, and no permission is needed
beyond reading /proc.
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
    "D": "waiting in the kernel, not to be interrupted",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "dead",
    "X": "dead",
}
"""Other letters are those of kernel threads."""


class ProcessSample(msgspec.Struct, frozen=True):
    state: str
    """A letter, as /proc has it; empty where the process is gone, `?` where it cannot be looked at from here."""
    started: int = 0
    """In ticks since boot: together with the pid it names one process."""
    cpu_ticks: int = 0
    switches: int = 0
    """How often its main thread went to sleep. Between two looks at one that sleeps on, it stays the same."""
    kernel: str = ""
    """The function of the kernel in which its main thread sleeps; empty where the kernel does not tell."""
    threads: int = 0

    @property
    def is_alive(self) -> bool:
        return self.state not in ("", "Z", "X")


def sample_process(pid: int, proc: str = PROC) -> ProcessSample:
    """`pid` 0: a rank that is known by its debug server alone."""
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
    """Or why there is nothing to say. Takes a second or two: counters are read twice."""
    told = live_system().nvml()
    return told.why if isinstance(told, Unanswered) else told.gpus
