"""Runs jobs of several gloo ranks: torch is imported once, every rank is a fork of this process.

    python -m consensus.ranks PAGE

Each rank's answers come out as JSON on standard output: {job: [{check: answer} of rank 0, of rank 1, ...]}.
PAGE is docs/consensus.md: its examples are jobs as well.
"""

import gc
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from consensus import checks, examples
from forkpoint.live.processes import free_port

torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()  # what it imports late, it imports here

LIMIT_S = 800.0
"""Against true hangs: ranks that are stopped end with the others."""

gc.collect()
gc.freeze()  # no rank walks over what is here for all, which would copy it


@dataclass
class Job:
    name: str
    world: int
    answer: Callable[[int], dict[str, object]]
    group_timeout_s: float = 600.0
    port: int = 0
    folder: Path = Path()
    began: float = 0.0
    ranks: dict[int, int] = field(default_factory=dict)
    """Process number -> rank, of those that still run."""
    stopped: set[int] = field(default_factory=set)


def rank_main(job: Job, rank: int) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(job.world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job.port)}
    if job.world > 1:
        dist.init_process_group("gloo", timeout=timedelta(seconds=job.group_timeout_s))
    try:
        answers = job.answer(rank)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the test shall see it
        traceback.print_exc()
        answers = {"": checks.raised(error)}
    part = job.folder / f"{rank}.part"
    part.write_text(json.dumps(answers))
    part.rename(job.folder / f"{rank}.json")
    while len(list(job.folder.glob("*.json"))) < answers.get(checks.STAYS, 0):
        time.sleep(0.05)


def start(job: Job) -> None:
    job.port = free_port()
    job.folder = Path(tempfile.mkdtemp())
    job.began = time.monotonic()
    for rank in range(job.world):
        pid = os.fork()
        if pid == 0:
            try:
                rank_main(job, rank)
            finally:
                sys.stderr.flush()
                os._exit(0)
        job.ranks[pid] = rank


def is_done(job: Job) -> bool:
    """Reap whoever has ended. Ranks that are stopped end with the others, and all end at the limit."""
    for pid in list(job.ranks):
        ended, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if ended and os.WIFSTOPPED(status):
            job.stopped.add(pid)
        elif ended:
            del job.ranks[pid]
    if job.ranks.keys() <= job.stopped or time.monotonic() - job.began > LIMIT_S:
        end(job)
    return not job.ranks


def end(job: Job) -> None:
    for pid in list(job.ranks):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        del job.ranks[pid]


def read(job: Job, rank: int) -> dict[str, object]:
    path = job.folder / f"{rank}.json"
    return json.loads(path.read_text()) if path.exists() else {}


def run(waiting: list[Job], at_once: int) -> None:
    running: list[Job] = []
    done: dict[str, list[dict[str, object]]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(waiting.pop(0))
                start(running[-1])
            for job in [job for job in running if is_done(job)]:
                running.remove(job)
                done[job.name] = [read(job, rank) for rank in range(job.world)]
            time.sleep(0.02)
    finally:
        for job in running:
            end(job)
    sys.stdout.write(json.dumps(done))


def main() -> None:
    told = [Job(name, 2, answer, group_timeout_s=20.0) for name, answer in examples.jobs(Path(sys.argv[1])).items()]
    run([*(Job(name, world, answer) for name, world, answer in checks.JOBS), *told], at_once=10)


if __name__ == "__main__":
    main()
