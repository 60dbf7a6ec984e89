"""Jobs that run on this machine, found by their ranks' environment in /proc, never by name. Nothing is sent to them."""

import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from forkpoint.errors import UsageError
from forkpoint.live.processes import PROC, list_pids, read_environ, read_link, read_state, read_text
from forkpoint.live.watch.sources.ask import NoAnswer, SourceAddress
from forkpoint.live.watch.sources.debug_server import list_workers
from forkpoint.model.world import name_ranks

_RANK_VARIABLES = (
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
"""torchrun, or set by hand; Open MPI; MPICH; plain Slurm, where scripts set RANK inside the process."""
_TORCH = re.compile(r"/libtorch(?:_cpu|_python)?\.so")
_TORCH_THREADS = ("pt_gloo", "pt_nccl", "pt_workerserver", "gloo_tcp_loop", "pt_tcpstore")
"""Names of threads that only a process with a process group has. Every user may read them."""
_WORKER_SERVER = "pt_workerserver"
_USUAL_FRONTEND = SourceAddress("localhost", 25999)
_LOOPBACK = ("", "localhost", "127.0.0.1", "::1")


# ---------------------------------------------------------------------------------------------------------------------
# The nouns.


@dataclass(frozen=True, slots=True)
class LiveRank:
    pid: int
    rank: int
    environ: dict[str, str]
    folder: str
    """Its working directory, to which its relative paths refer."""
    outputs: tuple[str, ...]
    """Files that its standard output and error go to."""
    world_size: int = 0
    """0: not known."""
    worker: SourceAddress | None = None
    """The address of its debug server, if nothing else is known about it: then there is no pid."""


@dataclass(frozen=True, slots=True)
class LiveJob:
    title: str
    """`train.py at 127.0.0.1:29500`."""
    names: frozenset[str]
    """What `--job` may call it."""
    world_size: int
    ranks: tuple[LiveRank, ...]
    lost: tuple[int, ...]
    """Ranks that the launcher started here and whose process is gone."""
    leftovers: tuple[int, ...] = ()
    """Pids of ranks of an earlier run with the same rendezvous, which go on: killing a launcher does not end its ranks."""

    @property
    def described(self) -> str:
        here = f"{self.title}: {name_ranks(rank.rank for rank in self.ranks)} of {self.world_size or '?'}"
        pids = " ".join(str(rank.pid) for rank in self.ranks[:8] if rank.pid)
        return "; ".join((f"{here} (pids {pids})" if pids else here, *self.notes))

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.leftovers:
            return ()
        pids = " ".join(map(str, self.leftovers[:8]))
        return (f"{len(self.leftovers)} ranks of an earlier run of it still run and are not asked (pids {pids})",)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A process with process groups whose environment this user may not read."""

    pid: int
    user: str
    command: str
    has_debug_server: bool


# ---------------------------------------------------------------------------------------------------------------------
# Which processes are ranks: not launchers, not shells around a rank, not a rank's loaders.


def find_live_ranks(proc: str = PROC) -> list[LiveRank]:
    """Ranks of all jobs whose environment this user may read."""
    return sorted((rank for job in find_jobs(proc) for rank in job.ranks), key=lambda rank: (rank.rank, rank.pid))


def find_jobs(proc: str = PROC) -> list[LiveJob]:
    environs = {pid: environ for pid in list_pids(proc) if (environ := read_environ(pid, proc))}
    looked = (look_at(pid, environ, proc) for pid, environ in environs.items() if not _is_forkpoint(pid, proc))
    found = [rank for rank in looked if rank]
    by_job: dict[tuple[str, ...], list[LiveRank]] = {}
    for rank in _without_helpers(_without_launchers(found, environs), proc):
        by_job.setdefault(_job_key(rank, proc), []).append(rank)
    jobs = [_newest_run(ranks, proc) for ranks in by_job.values()]
    return sorted(jobs, key=lambda job: min(rank.pid for rank in job.ranks))


def look_at(pid: int, environ: Mapping[str, str], proc: str = PROC) -> LiveRank | None:
    """None: not a rank."""
    pair = next(((environ[r], environ[s]) for r, s in _RANK_VARIABLES if environ.get(r) and environ.get(s)), None)
    process = Path(proc) / str(pid)
    if pair is None or not all(text.isascii() and text.isdecimal() for text in pair) or not _is_python(process):
        return None
    folder, outputs = _folder(pid, proc), tuple(_outputs(process))
    return LiveRank(pid, int(pair[0]), dict(environ), folder, outputs, int(pair[1]))


def _is_forkpoint(pid: int, proc: str) -> bool:
    """This process, or the `forkpoint run` around a launcher: srun gives them a rank, too."""
    return _script(pid, proc) == "forkpoint"


def _is_python(process: Path) -> bool:
    """Not a shell around a rank, which has the same environment. Where ptrace is forbidden, `exe` may be unreadable."""
    program = read_link(process / "exe") or next(iter(command_of(int(process.name), str(process.parent))), "")
    return "python" in Path(program).name.lower() or has_torch(process)


def has_torch(process: Path) -> bool:
    return bool(_TORCH.search(read_text(process / "maps")))


def _outputs(process: Path) -> Iterator[str]:
    for number in ("1", "2"):
        target = read_link(process / "fd" / number)
        if target.startswith("/") and Path(target).is_file():
            yield target


def _without_launchers(ranks: Sequence[LiveRank], environs: Mapping[int, Mapping[str, str]]) -> list[LiveRank]:
    """Torchrun may itself have RANK (Kubernetes operators set it) or Slurm's rank; it is found as the ranks' parent."""
    launched = {_parent(pid) for pid, environ in environs.items() if "TORCHELASTIC_RUN_ID" in environ}
    return [rank for rank in ranks if "TORCHELASTIC_RUN_ID" in rank.environ or rank.pid not in launched]


def _without_helpers(ranks: Sequence[LiveRank], proc: str) -> list[LiveRank]:
    """Loaders and other children share the rank's environment: the outermost process that has torch counts."""
    numbers = {rank.pid: rank.rank for rank in ranks}
    torch = {rank.pid for rank in ranks if has_torch(Path(proc) / str(rank.pid))}
    elders = {rank.pid: [pid for pid in _ancestors(rank.pid) if numbers.get(pid) == rank.rank] for rank in ranks}
    wrappers = {elder for pid in torch for elder in elders[pid]} - torch
    counted = [rank for rank in ranks if rank.pid not in wrappers]
    return [rank for rank in counted if not set(elders[rank.pid]) - wrappers]


def _ancestors(pid: int) -> list[int]:
    found: list[int] = []
    while (pid := _parent(pid)) > 1 and pid not in found:
        found.append(pid)
    return found


def _parent(pid: int) -> int:
    state = read_state(pid)
    return state.parent if state else 0


# ---------------------------------------------------------------------------------------------------------------------
# Ranks -> jobs, told apart by their rendezvous.


def _job_key(rank: LiveRank, proc: str) -> tuple[str, ...]:
    environ = rank.environ
    address = environ.get("MASTER_ADDR", "")
    told = [environ.get(name, "") for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")]
    # Two containers may each have a job at localhost:29500.
    space = read_link(Path(proc) / str(rank.pid) / "ns" / "net") if address in _LOOPBACK else ""
    return (address, *told, str(rank.world_size), space, "" if any(told) else rank.folder)


def _newest_run(ranks: Sequence[LiveRank], proc: str) -> LiveJob:
    """Of ranks with one rendezvous. Two processes of one rank belong to two runs: told apart by their launcher, then by
    when they started.
    """
    if len({rank.rank for rank in ranks}) == len(ranks):
        return _make_job(ranks, proc)
    runs: list[dict[int, LiveRank]] = []
    by_launcher: dict[int, list[LiveRank]] = {}
    for rank in sorted(ranks, key=lambda rank: _started(rank.pid)):
        launcher = _parent(rank.pid) if "TORCHELASTIC_RUN_ID" in rank.environ else 0
        by_launcher.setdefault(launcher, []).append(rank)
    for launched in by_launcher.values():
        runs.append({})
        for rank in launched:
            if rank.rank in runs[-1]:
                runs.append({})
            runs[-1][rank.rank] = rank
    newest = max(runs, key=lambda run: max(_started(rank.pid) for rank in run.values()))
    earlier = sorted(rank.pid for run in runs if run is not newest for rank in run.values())
    return replace(_make_job(list(newest.values()), proc), leftovers=tuple(earlier))


def _started(pid: int) -> int:
    state = read_state(pid)
    return state.started if state else 0


def _make_job(ranks: Sequence[LiveRank], proc: str) -> LiveJob:
    ordered = tuple(sorted(ranks, key=lambda rank: (rank.rank, rank.pid)))
    first = ordered[0]
    environ = first.environ
    script = _script(first.pid, proc)
    where = f"{environ.get('MASTER_ADDR', '')}:{environ.get('MASTER_PORT', '')}".strip(":")
    title = f"{script} at {where}" if where else script
    told = (environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_JOB_NAME", "TORCHELASTIC_RUN_ID", "MASTER_PORT"))
    array = f"{environ.get('SLURM_ARRAY_JOB_ID', '')}_{environ.get('SLURM_ARRAY_TASK_ID', '')}".strip("_")
    names = frozenset({name for name in (*told, array, script, where) if name and name != "none"})
    return LiveJob(title, names, first.world_size, ordered, tuple(_lost(ordered)))


def _script(pid: int, proc: str) -> str:
    """The program, from the command line: the first argument that is not an option of Python."""
    for word, after in pairwise([*command_of(pid, proc)[1:], ""]):
        if word == "-m":
            return after
        if not word.startswith("-"):
            return Path(word).name
    return f"pid {pid}"


def command_of(pid: int, proc: str = PROC) -> list[str]:
    return [word for word in read_text(Path(proc) / str(pid) / "cmdline").split("\0") if word]


def _lost(ranks: Sequence[LiveRank]) -> Iterator[int]:
    """Only if all ranks here have one launcher, which numbers its ranks without gaps."""
    first = ranks[0]
    local = {rank.environ.get("LOCAL_RANK", ""): rank.rank for rank in ranks}
    size = first.environ.get("LOCAL_WORLD_SIZE", "")
    numbered = size.isdecimal() and all(text.isdecimal() for text in local)
    if not numbered or len({_parent(rank.pid) for rank in ranks}) > 1:
        return
    base = first.rank - int(first.environ["LOCAL_RANK"])
    if any(rank - int(text) != base for text, rank in local.items()):
        return
    yield from (base + number for number in range(int(size)) if str(number) not in local)


# ---------------------------------------------------------------------------------------------------------------------
# The job that is meant.


def choose_job(jobs: Sequence[LiveJob], name: str | None) -> LiveJob:
    """Raises UsageError if none or several match, and lists them."""
    fitting = [job for job in jobs if name is None or name in job.names]
    if len(fitting) == 1:
        return fitting[0]
    if not jobs and name is None and (served := _served_for_others()):
        return served
    listed = [job.described for job in (fitting or jobs)]
    if fitting:
        told = f"{len(fitting)} jobs run here; choose one with --job, by port, id or script, or give pids:"
        raise UsageError(told, listed)
    if jobs:
        raise UsageError(f"--job {name}: no job here has that name. These run:", listed)
    raise UsageError(_none_found())


def job_of_pids(pids: Sequence[tuple[int | None, int]], proc: str = PROC) -> LiveJob:
    """`pids`: (rank, pid). If neither the user nor the environment gives the rank, it is the position in the list."""
    ranks: list[LiveRank] = []
    for place, (told, pid) in enumerate(pids):
        environ = read_environ(pid, proc)
        if environ is None:
            raise UsageError(f"{pid}: {_why_unreadable(pid)}")
        found = look_at(pid, environ, proc) or LiveRank(pid, place, environ, _folder(pid, proc), (), len(pids))
        ranks.append(
            found if told is None else LiveRank(pid, told, environ, found.folder, found.outputs, found.world_size)
        )
    if len({rank.rank for rank in ranks}) < len(ranks):
        raise UsageError("two of these processes are the same rank; name them as RANK=PID")
    return _make_job(ranks, proc)


def job_of_debug_server(frontend: SourceAddress) -> LiveJob:
    """All ranks that its page lists, of any machine and any user. Raises UsageError."""
    found = list_workers(frontend)
    if isinstance(found, NoAnswer):
        raise UsageError(f"--debug-server {frontend}: {found.why}; is torch.distributed.debug on in the job?")
    size = found.world_size or 0
    ranks = tuple(LiveRank(0, one.rank, {}, "/", (), size, one.address) for one in found.workers)
    return LiveJob(f"the job of the debug server at {frontend}", frozenset(), size, ranks, ())


def _folder(pid: int, proc: str) -> str:
    return read_link(Path(proc) / str(pid) / "cwd") or "/"


def _why_unreadable(pid: int) -> str:
    owner = owner_of(pid)
    if owner is None:
        return "there is no such process"
    if owner == owner_of(os.getpid()):
        return "its environment cannot be read from here; run forkpoint in its container, or with CAP_SYS_PTRACE"
    who = "root" if owner == "root" else f"{owner} or as root"
    return f"its environment cannot be read: it belongs to {owner}; run forkpoint as {who}, in its container"


def _none_found() -> str:
    foreign = find_foreign()
    if not foreign:
        return (
            "no rank runs on this machine: no process has RANK and WORLD_SIZE in its environment. Name the processes "
            "(forkpoint attach PID...), their machines (--hosts a,b), or what they left (forkpoint diagnose DIR)"
        )
    first = foreign[0]
    who = "root" if first.user == "root" else f"{first.user} or as root"
    return (
        f"no rank of user {_user(os.geteuid())} runs here, but {len(foreign)} processes of {first.user} have process groups "
        f"(pid {first.pid}: {first.command[:80]}); run forkpoint as {who}, or let their debug server "
        "answer (--debug-server HOST:PORT)"
    )


def _served_for_others() -> LiveJob | None:
    """Another user's job whose debug server answers on torch's default port."""
    if not any(foreign.has_debug_server for foreign in find_foreign()):
        return None
    try:
        return job_of_debug_server(_USUAL_FRONTEND)
    except UsageError:
        return None


def find_foreign(proc: str = PROC) -> list[Foreign]:
    return [found for pid in list_pids(proc) if read_environ(pid, proc) is None and (found := _look_foreign(pid, proc))]


def _look_foreign(pid: int, proc: str) -> Foreign | None:
    threads = frozenset(thread_names(pid, proc))
    owner = owner_of(pid, proc)
    if owner is None or not any(name.startswith(_TORCH_THREADS) for name in threads):
        return None
    return Foreign(pid, owner, " ".join(command_of(pid, proc)), _WORKER_SERVER in threads)


def thread_names(pid: int, proc: str = PROC) -> Iterable[str]:
    try:
        for task in (Path(proc) / str(pid) / "task").iterdir():
            yield (task / "comm").read_text(errors="replace").strip()
    except OSError:
        return


def owner_of(pid: int, proc: str = PROC) -> str | None:
    """None: no such process."""
    try:
        return _user((Path(proc) / str(pid)).stat().st_uid)
    except OSError:
        return None


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
