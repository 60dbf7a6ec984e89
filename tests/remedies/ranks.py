"""Runs jobs of several gloo ranks: torch is imported once, every rank is a fork of this process.

    python ranks.py JOBS.json

A job is a folder with a train.py. What each rank printed is in `log_rank_N.txt` beside it; exit codes of all jobs
come out as JSON on standard output. A job is over when its ranks have ended, when what the test waits for has happened,
or when it hangs: a clock alone ends nothing, since a busy machine may need any time.
"""

import atexit
import faulthandler
import gc
import importlib
import json
import os
import re
import runpy
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.parallel

from forkpoint.live.processes import free_port

AT_ONCE = 8
"""Most of them wait most of the time."""
HANGS_S = 60.0
"""None of its ranks has used any CPU for so long. On a busy machine who has something to do gets a little of it."""
LIMIT_S = 840.0


@dataclass
class Job:
    folder: Path
    world: int
    pg_timeout: int
    imports: list[str] = field(default_factory=list)
    """What its script imports besides torch: imported once, before any rank is begun."""
    trains: bool = False
    """It has an optimizer. What the first one imports late takes as long as torch itself, and is imported once too."""
    own_hashes: bool = False
    """Every rank has other hashes of strings, as processes have by default."""
    ends_itself: bool = False
    """Each rank ends as an interpreter does, hooks and threads included: for what happens when one ends."""
    must_end: bool = False
    """If a rank has to be killed, try once more: torch itself now and then hangs when a model is freed at the end."""
    ends: list[int] = field(default_factory=list)
    """Once these ranks have ended the others are killed; [] = all have to end."""
    until: str = ""
    """Once the log of rank 0 has this (a pattern) all ranks are killed; "" = they end by themselves."""
    stays_s: float = 0.0
    """They are left so long after that, to see what else they say."""
    said: float | None = None
    began: float = 0.0
    used: int = 0
    """CPU of all ranks together when it last grew, at `moved`."""
    moved: float = 0.0
    ranks: dict[int, int] = field(default_factory=dict)
    """Process number -> rank."""
    codes: dict[int, int] = field(default_factory=dict)


def prepare_rank(job: Job, rank: int, port: int) -> None:
    with (job.folder / f"log_rank_{rank}.txt").open("wb") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(job.world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "BACKEND": "gloo",
        "PG_TIMEOUT": str(job.pg_timeout),
        "DUMP_DIR": str(job.folder),
        "PYTHONHASHSEED": str(17 + rank),
    }
    os.chdir(job.folder)
    if job.own_hashes:
        os.execv(sys.executable, [sys.executable, "train.py"])
    faulthandler.register(signal.SIGUSR1)
    sys.path[0] = str(job.folder)
    sys.argv = ["train.py"]


def keep_models() -> None:
    """A model that DDP wraps stays until the process ends. Freed after `destroy_process_group`, its reducer may hang for ever (torch
    2.13): the group's destructor waits, with the GIL, for a thread that needs the GIL to free a tensor.
    """
    kept: list[object] = []
    wrapper = torch.nn.parallel.DistributedDataParallel
    wrap = wrapper.__init__

    def keeping(self: object, *words: object, **options: object) -> None:
        kept.append(self)
        wrap(self, *words, **options)

    wrapper.__init__ = keeping


def run_script() -> int:
    code = 1
    keep_models()
    try:
        runpy.run_path("train.py", run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    except BaseException:  # noqa: BLE001 - as the interpreter does at the top
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def start(job: Job) -> Job:
    job.began = job.moved = time.monotonic()
    job.ranks, job.codes, job.used, job.said = {}, {}, 0, None
    port = free_port()
    for rank in range(job.world):
        pid = os.fork()
        if pid == 0:
            prepare_rank(job, rank, port)
            if job.ends_itself:
                runpy.run_path("train.py", run_name="__main__")
                sys.exit()
            os._exit(run_script())
        job.ranks[pid] = rank
    return job


def is_done(job: Job) -> bool:
    """Reap whoever has ended; end the rest where nothing more is to come."""
    left = [p for p, rank in job.ranks.items() if rank not in job.codes]
    for pid in left:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            job.codes[job.ranks[pid]] = os.waitstatus_to_exitcode(status)
    left = [p for p in left if job.ranks[p] not in job.codes]
    enough, hangs = has_enough(job), is_stuck(job, left)
    for pid in left if enough or hangs else []:
        if not enough:
            os.kill(pid, signal.SIGUSR1)  # its stack goes to its log
            time.sleep(0.5)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        job.codes[job.ranks[pid]] = os.waitstatus_to_exitcode(status)
    return len(job.codes) == job.world


def has_enough(job: Job) -> bool:
    """What the test waits for has happened."""
    if job.ends:
        return job.codes.keys() >= set(job.ends)
    if not job.until:
        return False
    log = job.folder / "log_rank_0.txt"
    if job.said is None and log.exists() and re.search(job.until, log.read_text(errors="replace"), re.MULTILINE):
        job.said = time.monotonic()
    return job.said is not None and time.monotonic() - job.said >= job.stays_s


def is_stuck(job: Job, left: list[int]) -> bool:
    now, used = time.monotonic(), sum(map(ticks, left))
    if used != job.used:
        job.used, job.moved = used, now
    return now - job.moved > HANGS_S or now - job.began > LIMIT_S


def ticks(pid: int) -> int:
    """CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main() -> None:
    waiting = [Job(**told | {"folder": Path(told["folder"])}) for told in json.loads(Path(sys.argv[1]).read_text())]
    for module in {name for job in waiting for name in job.imports}:
        importlib.import_module(module)
    if any(job.trains for job in waiting):
        torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1).zero_grad()
    gc.collect()
    gc.freeze()  # ranks do not walk over it, which would copy all of it
    running: list[Job] = []
    done: dict[str, list[int]] = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            running.append(start(waiting.pop(0)))
        for job in [j for j in running if is_done(j)]:
            running.remove(job)
            codes = [job.codes[rank] for rank in range(job.world)]
            if job.must_end and min(codes) < 0:
                job.must_end = False
                waiting.append(job)
                continue
            done[str(job.folder)] = codes
        time.sleep(0.1)
    sys.stdout.write(json.dumps(done))


if __name__ == "__main__":
    main()
