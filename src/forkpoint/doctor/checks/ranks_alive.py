"""Are all ranks of the job that belong on this node still there?

Counted by RANK in their environment: agents, loader workers and compile workers are Python processes, too. A process in
D once is no finding, disks do that; one that is stopped or traced makes no step.
"""

from forkpoint.doctor.check import Check, CheckResult, Status, bad, ok, skipped
from forkpoint.doctor.overlay import with_processes
from forkpoint.doctor.ranks import LocalJob, LocalRank, key_of, local_jobs
from forkpoint.doctor.system import Process, System

_STOPPED = {"T": "stopped by a signal", "t": "held by a debugger", "Z": "ended and not collected"}


def look(system: System) -> CheckResult:
    jobs = local_jobs(system.processes())
    if system.job is not None:
        jobs = tuple(job for job in jobs if job.key == key_of(system.environ))
    if not jobs:
        return skipped("no process here has RANK in its environment, or none that this user may look into")
    results = [_look_at(job) for job in jobs]
    worst = max(results, key=lambda result: (result.status is Status.BAD, result.status is Status.OK))
    says = "; ".join(result.says for result in results if result.status is worst.status)
    return CheckResult(worst.status, says, worst.fix, worst.details)


def _look_at(job: LocalJob) -> CheckResult:
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
    """A worker that outlives its rank still carries its number; the launcher's own children are the ranks."""
    kept = [rank for rank in job.ranks if not rank.has_lost_launcher]
    return kept or list(job.ranks)


def _waiting(job: LocalJob) -> str:
    waiting = [str(rank.rank) for rank in job.ranks if rank.process.state == "D"]
    return f"; rank {', '.join(waiting)} in D just now" if waiting else ""


def inject(system: System) -> System:
    """Four ranks of which the third is gone."""
    shared = {**system.environ, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4"}
    environs = [{**shared, "RANK": str(n), "LOCAL_RANK": str(n)} for n in (0, 1, 3)]
    return with_processes(
        system,
        [Process(900 + n, 899, 0, "S", 0.0, ("python", "train.py"), environ) for n, environ in enumerate(environs)],
    )


CHECK = Check(
    name="ranks-alive",
    title="ranks of this node alive",
    why="A rank that died without a word is what the others wait for until their timeout.",
    look=look,
    inject=inject,
)
