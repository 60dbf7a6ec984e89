"""Can the ranks meet at MASTER_ADDR and MASTER_PORT?

A name that does not resolve, or resolves to the loopback on a job of several nodes (Debian gives a host its own name as
127.0.1.1), or a port that another process holds, ends in a wait of minutes at start-up. Nothing is connected to: the port
is open only while the job's store lives, so a closed one proves nothing.
"""

from ipaddress import ip_address

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.overlay import with_environ, with_outputs
from forkpoint.doctor.ranks import LocalJob, local_jobs
from forkpoint.doctor.sockets import Address, listeners, own_addresses, owners
from forkpoint.doctor.system import NoAnswer, Process, Ran, System

_ADDRESS, _PORT = "MASTER_ADDR", "MASTER_PORT"
_LAST_PORT = 65535


def look(system: System) -> CheckResult:
    name, port = system.environ.get(_ADDRESS, ""), system.environ.get(_PORT, "")
    if not name or not port:
        return skipped(f"{_ADDRESS} and {_PORT} are not both set; torchrun makes its own")
    if not port.isdigit() or not 0 < int(port) <= _LAST_PORT:
        return bad(f"{_PORT}={port!r} is no port", f"export {_PORT}=29500")
    told = system.run(("getent", "ahosts", name))
    if isinstance(told, NoAnswer):
        return skipped(f"{name} was not looked up: {told.why}")
    addresses = _addresses(told)
    if not addresses:
        return bad(f"{name} does not resolve on this node", f"getent ahosts {name}; use an address or a name all know")
    if all(address.is_loopback for address in addresses) and _spans_nodes(system):
        return bad(
            f"{name} is {addresses[0]} here, the loopback, but the job spans nodes: each would meet itself",
            f"export {_ADDRESS} to an address of the first node that the others reach: ip -br addr",
        )
    return _port(system, f"{name} is {addresses[0]}", addresses, int(port))


def _addresses(told: Ran) -> list[Address]:
    words = (line.split()[0] for line in told.stdout.splitlines() if line.split())
    return list(dict.fromkeys(ip_address(word) for word in words)) if told.returncode == 0 else []


def _spans_nodes(system: System) -> bool:
    nodes = system.environ.get("SLURM_NNODES", "")
    if nodes.isdigit() and int(nodes) > 1:
        return True
    world, local = system.environ.get("WORLD_SIZE", ""), system.environ.get("LOCAL_WORLD_SIZE", "")
    return world.isdigit() and local.isdigit() and int(world) > int(local)


def _port(system: System, where: str, addresses: list[Address], port: int) -> CheckResult:
    own = own_addresses(system)
    if not own.intersection(addresses) and not any(address.is_loopback for address in addresses):
        return ok(f"{where}; port {port} is to be looked at there")
    jobs = [job for job in local_jobs(system.processes()) if _meets_at(job, port)]
    inodes = listeners(system, port)
    if not inodes:
        if jobs and system.job is not None:
            return bad(f"{where}: ranks run, but nothing listens on {port} any more: the store is gone", _SEE_STORE)
        return ok(f"{where}, and port {port} is free")
    return _holder(where, port, owners(system, inodes), jobs)


_SEE_STORE = "read the log of rank 0, or of the launcher that kept the store"


def _meets_at(job: LocalJob, port: int) -> bool:
    return any((rank.process.environ or {}).get(_PORT) == str(port) for rank in job.ranks)


def _holder(where: str, port: int, holders: tuple[Process, ...], jobs: list[LocalJob]) -> CheckResult:
    of_job = {pid for job in jobs for rank in job.ranks for pid in (rank.process.pid, rank.process.ppid)}
    if any(process.pid in of_job for process in holders):
        return ok(f"{where}, and the job's store listens on {port}")
    if not holders:
        return bad(f"{where}: port {port} is held by another user's process", f"ss -ltnp 'sport = :{port}' as root")
    first = holders[0]
    return bad(
        f"{where}: port {port} is held by pid {first.pid} ({' '.join(first.command)[:60]}), no rank of this job",
        f"ps -o pid,ppid,user,lstart,cmd -p {first.pid}; or take another port: export {_PORT}={_other(port)}",
    )


def _other(port: int) -> int:
    return port + 1 if port < _LAST_PORT else port - 1


def inject(system: System) -> System:
    nowhere = {_ADDRESS: "no-such-host.invalid", _PORT: "29500"}
    return with_outputs(with_environ(system, nowhere), {"getent": Ran(2, "")})


CHECK = Check(
    name="master-address",
    title="meeting point of the ranks",
    why="Ranks that cannot meet wait at start-up until the store's timeout, with one line at its end.",
    look=look,
    inject=inject,
)
