"""Run the job of one or more cases and keep what a person would have: dumps, logs and stacks per rank.

    python cases/record.py --backend nccl --out /tmp/out cases/0007 cases/0008 --parallel 4 --tar out.tar.gz

Each rank of a case is one process running `source/train.py` from /tmp/job/<case>. NCCL ranks share one GPU:
`NCCL_HOSTID` gives every rank a host of its own, so NCCL accepts the same device twice and uses loopback sockets.
A run ends when all evidence is there, when every process has ended, or at the limit; nothing is left running.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import textwrap
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

JOB_ROOT = Path("/tmp/job")  # where the source runs, so that this is the path in the evidence
TRACE_ROOT = Path("/tmp/trace")  # where ranks write dumps, logs and stacks while they run
DUMP_PREFIX = "nccl_trace_rank_"

# Runs inside every rank: stacks on SIGUSR1, and for gloo, which has no watchdog, a dump when the recorder has seen
# nothing new for a while, when the job has run for long, or when gloo raises because of another rank.
SITECUSTOMIZE = textwrap.dedent(
    """
    import faulthandler, os, signal, sys, threading, time

    def _trace(**what):
        from torch._C._distributed_c10d import _dump_fr_trace
        return _dump_fr_trace(**what)

    def _dump(path):
        blob = _trace()
        with open(path, "wb") as file:
            file.write(blob)

    def _wait_for_group(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            dist = sys.modules.get("torch.distributed")
            if dist is not None and getattr(dist, "is_initialized", bool)():
                return
            time.sleep(0.2)

    def _dump_when_quiet(path, mark, quiet, long):
        _wait_for_group(60)
        seen, changed, began = None, time.monotonic(), time.monotonic()
        while time.monotonic() < min(changed + quiet, began + long):
            time.sleep(0.5)
            now = _trace(includeStackTraces=False)
            if now != seen or b"retired" not in now:  # something new, or nothing recorded yet
                seen, changed = now, time.monotonic()
        open(mark, "w").close()
        time.sleep(1)  # for the stacks to be taken before the dump disturbs them
        _dump(path)

    def _dump_when_peer_fails(path):
        def hook(*error):
            sys.__excepthook__(*error)
            if "gloo/transport" in str(error[1]) and not os.path.exists(path):
                _dump(path)
        return hook

    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # what is left when the interpreter shuts down
    if "STACK_FILE" in os.environ:
        faulthandler.register(signal.SIGUSR1, file=open(os.environ.pop("STACK_FILE"), "w"), all_threads=True)
    if "TRACE_FILE" in os.environ:
        _path, _timeout = os.environ.pop("TRACE_FILE"), float(os.environ["PG_TIMEOUT"])
        sys.excepthook = _dump_when_peer_fails(_path)
        _args = (_path, os.environ.pop("QUIET_FILE"), 0.35 * _timeout, 2 * _timeout)
        threading.Thread(target=_dump_when_quiet, args=_args, daemon=True, name="trace").start()
    """
)


@dataclass(frozen=True)
class Case:
    """What case.toml says about how to run a job."""

    name: str
    source: Path
    world: int
    timing: bool
    buffer: int
    stacks_at: float | None  # for jobs that end before any dump could be seen
    self_dump: bool  # the job writes its own trace and ends by itself
    env: dict[str, str]

    @staticmethod
    def load(folder: Path) -> Case:
        data = tomllib.loads((folder / "case.toml").read_text())
        return Case(
            name=folder.name,
            source=folder / "source",
            world=data["world"],
            timing=data.get("timing", False),
            buffer=data.get("buffer", 2000),
            stacks_at=data.get("stacks_at"),
            self_dump=data.get("self_dump", False),
            env={key: str(value) for key, value in data.get("env", {}).items()},
        )


@dataclass(frozen=True)
class Settings:
    """What the command line says, the same for every case."""

    backend: str
    pg_timeout: float
    limit: float
    linger: float


@dataclass
class Run:
    """One case while it runs."""

    case: Case
    settings: Settings
    trace: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    joined: float | None = None  # when a rank first made its process group, as far as seen from outside
    first_dump: float | None = None
    stacks_taken: float | None = None
    asked: bool = False

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    def dumps(self) -> list[Path]:
        return sorted(path for path in self.trace.glob(DUMP_PREFIX + "*") if path.stat().st_size)

    def alive(self) -> list[int]:
        return [rank for rank, process in enumerate(self.processes) if is_running(process)]


def is_running(process: subprocess.Popen[bytes]) -> bool:
    """Look without reaping: the number of a dead rank stays taken until `stop` has ended its children."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def common_env(case: Case, settings: Settings, trace: Path, port: int) -> dict[str, str]:
    pipe, dump = str(trace / ".pipe_"), str(trace / DUMP_PREFIX)
    return {
        "WORLD_SIZE": str(case.world),
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "BACKEND": settings.backend,
        "PG_TIMEOUT": f"{settings.pg_timeout:.0f}",
        "DUMP_DIR": str(trace),
        "PYTHONPATH": str(trace / ".site"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "INFO",
        "TORCH_FR_BUFFER_SIZE": str(case.buffer),
        "TORCH_NCCL_TRACE_BUFFER_SIZE": str(case.buffer),
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_NCCL_ENABLE_TIMING": "1" if case.timing else "0",
        "TORCH_FR_DUMP_TEMP_FILE": dump,
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": dump,
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": pipe,
        "TORCH_FR_DEBUG_INFO_PIPE_FILE": pipe,
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_IB_DISABLE": "1",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_MAX_NCHANNELS": "2",
        "NCCL_NET_PLUGIN": "none",
    }


def rank_env(rank: int, settings: Settings, trace: Path) -> dict[str, str]:
    env = {
        "RANK": str(rank),
        "PYTHONHASHSEED": str(17 + rank),
        "NCCL_HOSTID": f"node{rank}",
        "NCCL_DEBUG": "INFO" if rank % 2 == 0 else "WARN",
        "STACK_FILE": str(trace / f"stacks_rank_{rank}.txt"),
    }
    if settings.backend == "gloo":
        env["TRACE_FILE"] = str(trace / f"{DUMP_PREFIX}{rank}")
        env["QUIET_FILE"] = str(trace / f".quiet_{rank}")
    return env


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(case: Case, settings: Settings) -> Run:
    """Copy the source to its neutral folder and start every rank in a session of its own."""
    job, trace = JOB_ROOT / case.name, TRACE_ROOT / case.name
    for folder in (job, trace):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(case.source, job, ignore=shutil.ignore_patterns("__pycache__"))
    (trace / ".site").mkdir(parents=True)
    (trace / ".site" / "sitecustomize.py").write_text(SITECUSTOMIZE)
    run = Run(case, settings, trace)
    shared = os.environ | common_env(case, settings, trace, free_port())
    for rank in range(case.world):
        with (trace / f"log_rank_{rank}.txt").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "train.py"],
                cwd=job,
                env=shared | rank_env(rank, settings, trace) | case.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        run.processes.append(process)
    return run


def ask_for_dumps(run: Run) -> None:
    """Write to the recorder's pipes: the only way to a dump when no watchdog fires."""
    run.asked = True
    for pipe in run.trace.glob(".pipe_*"):
        try:
            fd = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(fd, b"1\n")
            os.close(fd)
        except OSError as error:
            print(f"{run.case.name}: {pipe.name}: {error}", file=sys.stderr)


def take_stacks(run: Run) -> None:
    run.stacks_taken = run.age
    for rank in run.alive():
        os.kill(run.processes[rank].pid, signal.SIGUSR1)


def advance(run: Run) -> None:
    """Do what is due: notice dumps, ask for them, take stacks."""
    if run.joined is None and any(run.trace.glob(".pipe_*")):
        run.joined = run.age
    if run.first_dump is None and run.dumps():
        run.first_dump = run.age
    patience = 2.2 * run.settings.pg_timeout + (run.joined or 0)
    nccl = run.settings.backend == "nccl"
    if nccl and not run.asked and run.first_dump is None and run.age > patience:
        ask_for_dumps(run)
    if run.stacks_taken is not None:
        return
    if run.case.self_dump:
        hangs = False
    elif nccl:
        hangs = run.first_dump is not None and run.age > run.first_dump + 2
    else:
        hangs = any(run.trace.glob(".quiet_*"))
    too_long = run.age > patience + 4
    wanted = run.case.stacks_at is not None and run.age > run.case.stacks_at
    if hangs or too_long or wanted:
        take_stacks(run)


def finished(run: Run) -> bool:
    """Nobody lives, the limit is reached, or everything that will come has come."""
    if not run.alive() or run.age > run.settings.limit:
        return True
    if run.stacks_taken is None or run.first_dump is None:
        return False
    return run.age > max(run.first_dump, run.stacks_taken) + patience_after_dump(run)


def patience_after_dump(run: Run) -> float:
    """Gloo ranks still have to run into their timeout; NCCL ranks without a dump get time to write one."""
    if run.settings.backend == "gloo":
        return run.settings.pg_timeout
    dumped = {path.name.removeprefix(DUMP_PREFIX) for path in run.dumps()}
    complete = all(str(rank) in dumped for rank in run.alive())
    return run.settings.linger * (0.4 if complete else 1.0)


def stop(run: Run) -> list[int]:
    """End every rank and what it started (each is the leader of its own process group)."""
    for process in run.processes:
        os.killpg(process.pid, signal.SIGKILL)
    return [process.wait() for process in run.processes]


def keep(run: Run, out: Path) -> Path:
    capture = out / run.case.name / "capture"
    shutil.rmtree(capture, ignore_errors=True)
    capture.mkdir(parents=True)
    for path in sorted(run.trace.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            shutil.copy(path, capture / path.name)
    shutil.rmtree(run.trace)
    shutil.rmtree(JOB_ROOT / run.case.name)
    return capture


def record(folder: Path, settings: Settings, out: Path) -> str:
    """Run one case from start to end; the answer is one line for the person who waits."""
    run = start(Case.load(folder), settings)
    try:
        while not finished(run):
            advance(run)
            time.sleep(0.25)
    finally:
        seconds, codes = run.age, stop(run)
    capture = keep(run, out)
    dumps = len(list(capture.glob(DUMP_PREFIX + "*")))
    how = "asked" if run.asked else "own"
    return f"{run.case.name}  {seconds:5.1f} s  dumps {dumps}/{run.case.world} ({how})  exit {codes}"


def pack(out: Path, target: Path) -> None:
    with tarfile.open(target, "w:gz") as archive:
        for path in sorted(out.rglob("*")):
            archive.add(path, arcname=path.relative_to(out), recursive=False)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", type=Path, metavar="CASE_DIR")
    parser.add_argument("--backend", choices=["nccl", "gloo"], required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--parallel", type=int, default=1, metavar="N")
    parser.add_argument("--limit", type=float, default=75, metavar="SECONDS")
    parser.add_argument("--linger", type=float, default=20, metavar="SECONDS", help="how long to wait after a dump")
    parser.add_argument("--pg-timeout", type=float, default=20, metavar="SECONDS")
    parser.add_argument("--tar", type=Path, metavar="FILE", help="also pack DIR into one tar.gz")
    return parser.parse_args()


def main() -> None:
    args = parse()
    settings = Settings(args.backend, args.pg_timeout, args.limit, args.linger)
    with ThreadPoolExecutor(args.parallel) as pool:
        running = [pool.submit(record, folder.resolve(), settings, args.out) for folder in args.cases]
        for job in as_completed(running):
            print(job.exception() or job.result(), flush=True)
    if args.tar:
        pack(args.out, args.tar)


if __name__ == "__main__":
    main()
