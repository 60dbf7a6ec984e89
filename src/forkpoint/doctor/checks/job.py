"""The job on this node: where its ranks meet, whether they are alive, and what older jobs left behind."""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from forkpoint.doctor.report import CheckResult, CheckStatus, bad, check, ok, skipped
from forkpoint.doctor.system import Process, Ran, System, Unanswered

# ---------------------------------------------------------------------------------------------------------------------
# Ranks on this node, recognised by their environment, never by process name.
#
# Loader and compile workers inherit a rank's environment, so of several processes with one RANK the topmost is the rank.

_REAPERS = {"systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "s6-svscan", "conmon", "pause"}
"""Processes that adopt the children of a dead parent, whatever their pid."""
_STARTS_RANKS = re.compile(
    r"python[\d.]*|\w*sh|torchrun|\w*mpi\w*|[op]rted|hydra\w*|slurmstepd|srun|ray|accelerate|deepspeed"
)
"""If process 1 of a container is one of these, it may have started ranks itself; any other has only adopted them."""
_JOB = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")
JobKey = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LocalRank:
    rank: int
    local_rank: int | None
    process: Process
    has_lost_launcher: bool
    """Its parent is one that adopts orphans: it was left behind, or is a worker of a rank that is gone."""


@dataclass(frozen=True, slots=True)
class LocalJob:
    """The part of one job that runs here."""

    key: JobKey
    ranks: tuple[LocalRank, ...]
    """By rank."""
    expected: int | None
    """How many ranks belong on this node, according to their launcher."""

    @property
    def name(self) -> str:
        known = [f"{name}={value}" for name, value in zip(_JOB, self.key, strict=True) if value]
        return " ".join(known) or "a job without an id"


def key_of(environ: Mapping[str, str]) -> JobKey:
    return tuple(environ.get(name, "") for name in _JOB)


def local_jobs(processes: Iterable[Process]) -> tuple[LocalJob, ...]:
    """Jobs with a rank on this node, the oldest first."""
    by_pid = {process.pid: process for process in processes}
    found: defaultdict[JobKey, list[LocalRank]] = defaultdict(list)
    for process in by_pid.values():
        if process.environ is not None and _is_rank(process, by_pid):
            rank = int(process.environ["RANK"])
            found[key_of(process.environ)].append(
                LocalRank(rank, _number(process.environ, "LOCAL_RANK"), process, _is_adopted(by_pid.get(process.ppid)))
            )
    jobs = [LocalJob(key, _by_rank(ranks), _expected(ranks)) for key, ranks in found.items()]
    return tuple(sorted(jobs, key=lambda job: min(rank.process.started for rank in job.ranks)))


def _is_rank(process: Process, by_pid: Mapping[int, Process]) -> bool:
    """It has a RANK, and its parent does not have the same."""
    environ = process.environ or {}
    parent = by_pid.get(process.ppid)
    above = (parent.environ or {}).get("RANK") if parent else None
    return environ.get("RANK", "").isascii() and environ.get("RANK", "").isdigit() and above != environ["RANK"]


def _is_adopted(parent: Process | None) -> bool:
    """A parent that we cannot see is outside this container, not gone: the kernel always gives orphans a new parent."""
    if parent is None or not parent.command:
        return False
    name = posixpath.basename(parent.command[0]).removeprefix("-")
    return name in _REAPERS or (parent.pid == 1 and not _STARTS_RANKS.fullmatch(name))


def _by_rank(ranks: Iterable[LocalRank]) -> tuple[LocalRank, ...]:
    return tuple(sorted(ranks, key=lambda each: (each.rank, each.process.pid)))


def _expected(ranks: Iterable[LocalRank]) -> int | None:
    sizes = {_number(rank.process.environ or {}, "LOCAL_WORLD_SIZE") for rank in ranks}
    return sizes.pop() if len(sizes) == 1 else None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    value = environ.get(name, "")
    return int(value) if value.isascii() and value.isdigit() else None


# ---------------------------------------------------------------------------------------------------------------------
# Addresses of this node and who listens on a port, from /proc/net: no socket is opened.

_LOCAL = re.compile(r"\|-- (?P<address>[\d.]+)\n\s+/32 host LOCAL")
_LISTENS = "0A"
_SOCKET = re.compile(r"socket:\[(?P<inode>\d+)\]")
_LAST_FIELD = 10
"""Fields of a line of /proc/net/tcp up to the inode."""

Address = IPv4Address | IPv6Address


def own_addresses(system: System) -> frozenset[Address]:
    trie = system.read("/proc/net/fib_trie") or ""
    table = (system.read("/proc/net/if_inet6") or "").splitlines()
    four = (ip_address(match["address"]) for match in _LOCAL.finditer(trie))
    six = (IPv6Address(int(line.split()[0], 16)) for line in table if line.split())
    return frozenset((*four, *six))


def listeners(system: System, port: int) -> frozenset[str]:
    """Inodes of the sockets that listen on a port, on any address."""
    return frozenset(_listening(system, "/proc/net/tcp", port)) | frozenset(_listening(system, "/proc/net/tcp6", port))


def _listening(system: System, table: str, port: int) -> Iterator[str]:
    for line in (system.read(table) or "").splitlines()[1:]:
        fields = line.split(None, _LAST_FIELD)
        if len(fields) >= _LAST_FIELD and fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def owners(system: System, inodes: frozenset[str]) -> tuple[Process, ...]:
    """Processes that have one of these sockets open. Those of other users cannot be seen."""
    return tuple(process for process in system.processes() if _holds(system, process.pid, inodes))


def _holds(system: System, pid: int, inodes: frozenset[str]) -> bool:
    folder = f"/proc/{pid}/fd"
    links = (system.link(f"{folder}/{name}") for name in system.names(folder))
    found = (_SOCKET.fullmatch(link) for link in links if link)
    return any(match is not None and match["inode"] in inodes for match in found)


_ADDRESS, _PORT = "MASTER_ADDR", "MASTER_PORT"
_LAST_PORT = 65535


def _look_at_master_address(system: System) -> CheckResult:
    """Can the ranks meet at MASTER_ADDR and MASTER_PORT?

    A name that does not resolve, or resolves to the loopback on a job of several nodes (Debian gives a host its own name as
    127.0.1.1), or a port that another process uses, causes a wait of minutes at start-up. No connection is tried: the port is
    open only while the job's store runs, so a closed one proves nothing.
    """
    name, port = system.environ.get(_ADDRESS, ""), system.environ.get(_PORT, "")
    if not name or not port:
        return skipped(f"{_ADDRESS} and {_PORT} are not both set; torchrun makes its own")
    if not port.isdigit() or not 0 < int(port) <= _LAST_PORT:
        return bad(f"{_PORT}={port!r} is not a port", f"export {_PORT}=29500")
    told = system.run(("getent", "ahosts", name))
    if isinstance(told, Unanswered):
        return skipped(f"{name} was not looked up: {told.why}")
    addresses = _addresses(told)
    if not addresses:
        return bad(f"{name} does not resolve on this node", f"getent ahosts {name}; use an address or a name all know")
    if all(address.is_loopback for address in addresses) and _spans_nodes(system):
        return bad(
            f"{name} is {addresses[0]} here, the loopback, but the job spans nodes: each would meet itself",
            f"export {_ADDRESS} to an address of the first node that the others reach: ip -br addr",
        )
    return _look_at_port(system, f"{name} is {addresses[0]}", addresses, int(port))


def _addresses(told: Ran) -> list[Address]:
    words = (line.split()[0] for line in told.stdout.splitlines() if line.split())
    return list(dict.fromkeys(ip_address(word) for word in words)) if told.returncode == 0 else []


def _spans_nodes(system: System) -> bool:
    nodes = system.environ.get("SLURM_NNODES", "")
    if nodes.isdigit() and int(nodes) > 1:
        return True
    world, local = system.environ.get("WORLD_SIZE", ""), system.environ.get("LOCAL_WORLD_SIZE", "")
    return world.isdigit() and local.isdigit() and int(world) > int(local)


def _look_at_port(system: System, where: str, addresses: list[Address], port: int) -> CheckResult:
    own = own_addresses(system)
    if not own.intersection(addresses) and not any(address.is_loopback for address in addresses):
        return ok(f"{where}; check port {port} there")
    jobs = [job for job in local_jobs(system.processes()) if _meets_at(job, port)]
    inodes = listeners(system, port)
    if not inodes:
        if jobs and system.job is not None:
            return bad(f"{where}: ranks run, but nothing listens on {port} any more: the store is gone", _SEE_STORE)
        return ok(f"{where}, and port {port} is free")
    return _look_at_holder(where, port, owners(system, inodes), jobs)


_SEE_STORE = "read the log of rank 0, or of the launcher that kept the store"


def _meets_at(job: LocalJob, port: int) -> bool:
    return any((rank.process.environ or {}).get(_PORT) == str(port) for rank in job.ranks)


def _look_at_holder(where: str, port: int, holders: tuple[Process, ...], jobs: list[LocalJob]) -> CheckResult:
    of_job = {pid for job in jobs for rank in job.ranks for pid in (rank.process.pid, rank.process.ppid)}
    if any(process.pid in of_job for process in holders):
        return ok(f"{where}, and the job's store listens on {port}")
    if not holders:
        return bad(f"{where}: port {port} is held by another user's process", f"ss -ltnp 'sport = :{port}' as root")
    first = holders[0]
    return bad(
        f"{where}: port {port} is held by pid {first.pid} ({' '.join(first.command)[:60]}), no rank of this job",
        f"ps -o pid,ppid,user,lstart,cmd -p {first.pid}; or take another port: export {_PORT}={_other_port(port)}",
    )


def _other_port(port: int) -> int:
    return port + 1 if port < _LAST_PORT else port - 1


MASTER_ADDRESS = check("master-address", _look_at_master_address)


_STOPPED = {"T": "stopped by a signal", "t": "held by a debugger", "Z": "ended and not reaped"}


def _look_at_ranks_alive(system: System) -> CheckResult:
    """Are all ranks of the job that belong on this node still there?

    Counted by RANK in their environment: agents, loader workers and compile workers are Python processes, too. A process in
    D for a moment is normal, disks cause it; a process that is stopped or traced makes no progress.
    """
    jobs = local_jobs(system.processes())
    if system.job is not None:
        jobs = tuple(job for job in jobs if job.key == key_of(system.environ))
    if not jobs:
        return skipped("no process that this user may inspect has RANK in its environment")
    results = [_look_at_job(job) for job in jobs]
    worst = max(results, key=lambda result: (result.status is CheckStatus.BAD, result.status is CheckStatus.OK))
    says = "; ".join(result.says for result in results if result.status is worst.status)
    return CheckResult(worst.status, says, worst.fix, worst.details)


def _look_at_job(job: LocalJob) -> CheckResult:
    pids = ",".join(str(rank.process.pid) for rank in job.ranks)
    closer = f"ps -o pid,ppid,stat,etimes,wchan:32,cmd -p {pids}"
    halted = [rank for rank in job.ranks if rank.process.state in _STOPPED]
    if halted:
        first = halted[0]
        return bad(f"rank {first.rank} (pid {first.process.pid}) is {_STOPPED[first.process.state]}", closer)
    if job.expected is None:
        return skipped(f"{len(job.ranks)} ranks of {job.name}; how many belong here is not in their environment")
    here = {rank.local_rank for rank in _with_launcher(job)}
    missing = [number for number in range(job.expected) if number not in here]
    details = (("ranks here", f"{len(here)} of {job.expected}"),)
    if missing:
        gone = ", ".join(map(str, missing))
        return bad(f"{job.name}: local rank {gone} of {job.expected} is gone", closer, *details)
    return ok(f"{job.name}: all {job.expected} ranks run{_waiting(job)}", *details)


def _with_launcher(job: LocalJob) -> list[LocalRank]:
    """A worker that outlives its rank still has its RANK; the launcher's own children are the ranks."""
    kept = [rank for rank in job.ranks if not rank.has_lost_launcher]
    return kept or list(job.ranks)


def _waiting(job: LocalJob) -> str:
    waiting = [str(rank.rank) for rank in job.ranks if rank.process.state == "D"]
    return f"; rank {', '.join(waiting)} in D just now" if waiting else ""


RANKS_ALIVE = check("ranks-alive", _look_at_ranks_alive)


_SHOWN_ORPHANS = 8


def _look_at_orphans(system: System) -> CheckResult:
    """Are there ranks whose launcher is gone?

    They hold GPUs, ports and shared memory of a job that everybody believes has ended. They are named, with the command to
    inspect them; whether they may be killed is their owner's decision.
    """
    processes = system.processes()
    if not processes:
        return skipped("processes cannot be listed here")
    ranks = [rank for job in local_jobs(processes) for rank in job.ranks]
    orphans = [rank for rank in ranks if rank.has_lost_launcher]
    unseen = sum(process.environ is None and bool(process.command) for process in processes)
    note = f"; no access to {unseen} others" if unseen else ""
    if not orphans:
        return ok(f"{len(ranks)} ranks here, none without its launcher{note}")
    pids = ",".join(str(rank.process.pid) for rank in orphans)
    return bad(
        f"{len(orphans)} ranks have lost their launcher: {_named_orphans(orphans)}{note}",
        f"ps -o pid,ppid,user,lstart,stat,cmd -p {pids}; if they are yours and of no running job, end them by pid",
    )


def _named_orphans(orphans: list[LocalRank]) -> str:
    shown = [
        f"rank {rank.rank} is pid {rank.process.pid} of user {rank.process.uid}" for rank in orphans[:_SHOWN_ORPHANS]
    ]
    more = f" and {len(orphans) - _SHOWN_ORPHANS} more" if len(orphans) > _SHOWN_ORPHANS else ""
    return ", ".join(shown) + more


ORPHANS = check("orphans", _look_at_orphans)
