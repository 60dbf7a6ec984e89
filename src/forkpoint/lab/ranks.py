"""Runs the ranks of one job until all evidence exists: dumps, logs and stacks of each. No process is left.

Each rank is one process that runs `train.py`, in its own session. NCCL ranks share one GPU: `NCCL_HOSTID` makes every
rank claim its own host, so NCCL accepts the same device twice and uses loopback sockets. Needs only the standard library:
cases are recorded on machines that have only a checkout and torch.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from typing import Final, Literal

from forkpoint.errors import UsageError
from forkpoint.live.processes import free_port

# ---------------------------------------------------------------------------------------------------------------------
# How one job is run.

Backend = Literal["gloo", "nccl"]


@dataclass(frozen=True, slots=True)
class Signal:
    """Sent from outside to one rank."""

    rank: int
    signal: Signals
    when: str
    """Sent as soon as the rank's log contains this."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job and what happens to it."""

    name: str
    source: Path
    """A folder with train.py."""
    world: int
    env: Mapping[str, str]
    signals: tuple[Signal, ...] = ()
    absent: tuple[int, ...] = ()
    """Ranks that are never started."""
    timing: bool = False
    buffer: int = 2000
    stacks_at: float | None = None
    """Seconds after the start, for jobs that end before any dump appears."""
    self_dump: bool = False
    """The job writes its own trace and ends by itself."""
    dump_at_end: bool = False


def read_plan(case: Path) -> JobPlan:
    """How to run the job of a case again."""
    facts = tomllib.loads((case / "case.toml").read_text())
    return JobPlan(
        name=case.name,
        source=case / "source",
        world=facts["world"],
        env={key: str(value) for key, value in facts.get("env", {}).items()},
        timing=facts.get("timing", False),
        buffer=facts.get("buffer", 2000),
        stacks_at=facts.get("stacks_at"),
        self_dump=facts.get("self_dump", False),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Running it.

DUMP_PREFIX = "nccl_trace_rank_"

_INSIDE = Path(__file__).parent / "inside" / "sitecustomize.py"
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class LabSettings:
    """How to run, the same for every job."""

    backend: Backend = "gloo"
    out: Path = field(default_factory=lambda: Path("lab"))
    pg_timeout: float = 10
    limit: float = 75
    linger: float = 8
    """How long to wait for more once a rank has written a dump or ended."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """For all ranks, besides the lab's own variables."""
    dumps: bool = True
    """False: nothing of the lab runs inside the ranks, so there are no stacks, and only dumps that NCCL writes itself."""
    world: int | None = None
    """Another number of ranks than the job's own."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    """Set by another thread: ends the run like the time limit."""


@dataclass
class RunningJob:
    """One job while it runs."""

    plan: JobPlan
    settings: LabSettings
    job: Path
    trace: Path
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict[int, "subprocess.Popen[bytes]"])
    started: float = field(default_factory=time.monotonic)
    sent: set[Signal] = field(default_factory=set[Signal])
    joined: float | None = None
    """When a rank first made its process group, as far as seen from outside."""
    first_dump: float | None = None
    first_end: float | None = None
    stacks_taken: float | None = None
    asked: bool = False

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    def dumps(self) -> list[Path]:
        return sorted(path for path in self.trace.glob(DUMP_PREFIX + "*") if path.stat().st_size)

    def alive(self) -> list[int]:
        return [rank for rank, process in self.processes.items() if is_running(process)]


@dataclass(frozen=True, slots=True)
class JobEnded:
    """How the run went."""

    seconds: float
    exits: Mapping[int, int]
    """Rank -> exit code, negative for a signal. Ranks that still ran were killed (-9)."""
    asked: bool
    """No rank wrote a dump by itself, so the recorder's pipes were used."""


def run_ranks(plan: JobPlan, settings: LabSettings, capture: Path) -> JobEnded:
    """Copies what the ranks left to `capture`."""
    with _own_folder("job", plan.name) as job, _own_folder("trace", plan.name) as trace:
        run = RunningJob(plan, settings, job, trace)
        try:
            _start(run)
            while not _is_finished(run):
                _advance(run)
                time.sleep(_POLL_S)
        finally:
            seconds, exits = run.age, _stop(run)
        _keep(trace, capture)
    return JobEnded(seconds, exits, run.asked)


@contextmanager
def _own_folder(kind: str, name: str) -> Generator[Path]:
    """A path like `/tmp/job/NAME`, so that evidence has simple paths; a number is appended if another run uses it."""
    folder = _make_folder(Path(tempfile.gettempdir()) / kind, name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make_folder(root: Path, name: str) -> Path:
    number = 1
    while True:
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except PermissionError as error:
            raise UsageError(f"{root} is not writable: set TMPDIR to a folder that is") from error
        else:
            return folder


def is_running(process: "subprocess.Popen[bytes]") -> bool:
    """Does not reap: the pid of a dead rank stays reserved until `_stop` has ended its children."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


# ------------------------------------------------------------------------------------------------------------- the start


def _start(run: RunningJob) -> None:
    shutil.copytree(run.plan.source, run.job, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    if run.settings.dumps:
        (run.trace / ".site").mkdir()
        shutil.copy(_INSIDE, run.trace / ".site")
    shared = os.environ | _common_env(run, free_port())
    for rank in sorted(set(range(run.plan.world)) - set(run.plan.absent)):
        env = {**shared, **_rank_env(run, rank), **run.plan.env, **run.settings.env}
        if run.settings.dumps:
            before = run.settings.env.get("PYTHONPATH")
            env["PYTHONPATH"] = os.pathsep.join([str(run.trace / ".site"), *([before] if before else [])])
        with (run.trace / f"log_rank_{rank}.txt").open("wb") as log:
            run.processes[rank] = subprocess.Popen(
                [sys.executable, "train.py"],
                cwd=run.job,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


SHARED_GPU: Final = {
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_MAX_NCHANNELS": "2",
    "NCCL_NET_PLUGIN": "none",
}
"""NCCL refuses two ranks on one GPU of one host, so each rank is given a host of its own and they talk through sockets."""


def _common_env(run: RunningJob, port: int) -> dict[str, str]:
    plan, settings, trace = run.plan, run.settings, run.trace
    pipe, dump = str(trace / ".pipe_"), str(trace / DUMP_PREFIX)
    return {
        "WORLD_SIZE": str(plan.world),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "BACKEND": settings.backend,
        "PG_TIMEOUT": f"{settings.pg_timeout:.0f}",
        "DUMP_DIR": str(trace),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # A rank that gloo aborts writes no dump: its stack is then all that is known about it.
        "PYTHONFAULTHANDLER": "1",
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "INFO",
        "TORCH_FR_BUFFER_SIZE": str(plan.buffer),
        "TORCH_NCCL_TRACE_BUFFER_SIZE": str(plan.buffer),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_ENABLE_TIMING": "1" if plan.timing else "0",
        "TORCH_FR_DUMP_TEMP_FILE": dump,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dump,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": pipe,
        "TORCH_FR_DEBUG_INFO_PIPE_FILE": pipe,
        **SHARED_GPU,
    }


def _rank_env(run: RunningJob, rank: int) -> dict[str, str]:
    env = {
        "RANK": str(rank),
        "PYTHONHASHSEED": str(17 + rank),
        "NCCL_HOSTID": f"node{rank}",
        "NCCL_DEBUG": "INFO" if rank % 2 == 0 else "WARN",
    }
    if run.settings.dumps:
        env["STACK_FILE"] = str(run.trace / f"stacks_rank_{rank}.txt")
        env["TRACE_FILE"] = str(run.trace / f"{DUMP_PREFIX}{rank}")
        env["QUIET_FILE"] = str(run.trace / f".rank_{rank}.quiet")
        by_watchdog = "watchdog" if run.settings.backend == "nccl" else "quiet"
        env["TRACE_WHEN"] = "end" if run.plan.dump_at_end else by_watchdog
    return env


# ------------------------------------------------------------------------------------------------------- while it runs


def _advance(run: RunningJob) -> None:
    """Does what is due: sends signals, notices dumps, asks for them, takes stacks."""
    for signal_ in run.plan.signals:
        if signal_ not in run.sent:
            _send_when_due(run, signal_)
    if run.joined is None and (any(run.trace.glob(".pipe_*")) or any(run.trace.glob(".*.joined"))):
        run.joined = run.age
    if run.first_dump is None and run.dumps():
        run.first_dump = run.age
    if run.first_end is None and len(run.alive()) < len(run.processes):
        run.first_end = run.age
    if not run.settings.dumps:
        return
    if run.settings.backend == "nccl" and not run.asked and run.first_dump is None and run.age > _patience(run) - 4:
        _ask_for_dumps(run)
    if run.stacks_taken is not None and _was_only_slow(run):
        _forget_stacks(run)
    if run.stacks_taken is None and (_hangs(run) or run.age > _patience(run) or _stacks_due(run)):
        _take_stacks(run)


def _send_when_due(run: RunningJob, due: Signal) -> None:
    if due.when.encode() in (run.trace / f"log_rank_{due.rank}.txt").read_bytes():
        os.kill(run.processes[due.rank].pid, due.signal)
        run.sent.add(due)


def _hangs(run: RunningJob) -> bool:
    if run.plan.self_dump or run.plan.dump_at_end:
        return False
    if run.settings.backend == "nccl":
        return run.first_dump is not None and run.age > run.first_dump + 2
    return any(run.trace.glob(".*.quiet"))


def _was_only_slow(run: RunningJob) -> bool:
    """The ranks removed their marks: what looked like a hang was an import or a busy machine."""
    marked = run.settings.backend == "gloo" and not _stacks_due(run) and run.age < _patience(run)
    return marked and not run.plan.dump_at_end and not any(run.trace.glob(".*.quiet"))


def _forget_stacks(run: RunningJob) -> None:
    run.stacks_taken = run.first_dump = None
    for path in run.trace.glob("stacks_rank_*"):
        os.truncate(path, 0)


def _patience(run: RunningJob) -> float:
    """After this long stacks are taken, hang or not. A job that should end gets all the time there is."""
    if run.plan.dump_at_end:
        return run.settings.limit - 5
    return 2.2 * run.settings.pg_timeout + (run.joined or 0) + 4


def _stacks_due(run: RunningJob) -> bool:
    return run.plan.stacks_at is not None and run.age > run.plan.stacks_at


def _ask_for_dumps(run: RunningJob) -> None:
    """Writes to the recorder's pipes: the only way to get a dump if no watchdog fires."""
    run.asked = True
    for pipe in run.trace.glob(".pipe_*"):
        try:
            fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # its rank no longer listens
            continue
        os.write(fd, b"1\n")
        os.close(fd)


def _take_stacks(run: RunningJob) -> None:
    run.stacks_taken = run.age
    for rank in run.alive():
        os.kill(run.processes[rank].pid, signal.SIGUSR1)


# ------------------------------------------------------------------------------------------------------------- the end


def _is_finished(run: RunningJob) -> bool:
    """All ranks have ended, the limit is reached, or no more evidence will come."""
    if not run.alive() or run.age > run.settings.limit or run.settings.cancelled.is_set():
        return True
    # The others notice at once that a rank ended, or run into their timeout.
    if run.first_end is not None and run.age > run.first_end + run.settings.pg_timeout + run.settings.linger:
        return True
    if run.stacks_taken is None or run.first_dump is None:
        return False
    return run.age > max(run.first_dump, run.stacks_taken) + _patience_after_dump(run)


def _patience_after_dump(run: RunningJob) -> float:
    """Gloo ranks still have to run into their timeout; NCCL ranks without a dump get time to write one."""
    if run.settings.backend == "gloo":
        return run.settings.pg_timeout
    dumped = {path.name.removeprefix(DUMP_PREFIX) for path in run.dumps()}
    complete = all(str(rank) in dumped for rank in run.alive())
    return run.settings.linger * (0.4 if complete else 1.0)


def _stop(run: RunningJob) -> dict[int, int]:
    """Kills every rank and its children (each rank leads its own process group)."""
    for process in run.processes.values():
        os.killpg(process.pid, signal.SIGKILL)
    return {rank: process.wait() for rank, process in run.processes.items()}


def _keep(trace: Path, capture: Path) -> None:
    shutil.rmtree(capture, ignore_errors=True)
    capture.mkdir(parents=True)
    for path in sorted(trace.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, capture / path.name)
