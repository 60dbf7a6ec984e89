"""Are there ranks whose launcher is gone?

They keep GPUs, ports and shared memory of a job that everybody believes ended. They are named, with the command to look
at them; whether they may be ended is for their owner to say.
"""

from forkpoint.doctor.check import Check, CheckResult, bad, ok, skipped
from forkpoint.doctor.overlay import with_processes
from forkpoint.doctor.ranks import LocalRank, local_jobs
from forkpoint.doctor.system import Process, System

_SHOWN = 8


def look(system: System) -> CheckResult:
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
        f"{len(orphans)} ranks have lost their launcher: {_named(orphans)}{note}",
        f"ps -o pid,ppid,user,lstart,stat,cmd -p {pids}; if they are yours and of no running job, end them by pid",
    )


def _named(orphans: list[LocalRank]) -> str:
    shown = [f"rank {rank.rank} is pid {rank.process.pid} of user {rank.process.uid}" for rank in orphans[:_SHOWN]]
    more = f" and {len(orphans) - _SHOWN} more" if len(orphans) > _SHOWN else ""
    return ", ".join(shown) + more


def inject(system: System) -> System:
    init = Process(1, 0, 0, "S", 0.0, ("/sbin/init",), None)
    environ = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}
    return with_processes(system, [init, Process(4711, 1, 1000, "S", 0.0, ("python", "train.py"), environ)])


CHECK = Check(
    name="orphans",
    title="ranks of older jobs",
    why="What an ended job left running holds GPUs and ports that the next one needs, and may answer in its place.",
    look=look,
    inject=inject,
)
