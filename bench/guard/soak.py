"""Healthy jobs under the guard, for a long time: every alarm, and every word of blindness, is one too many.

    python -m bench.guard.soak --minutes 30

healthy_job.py runs all the time: slow, uneven, checkpointing, evaluating, resuming. Beside it the healthy jobs of the lab
run one after the other. The threshold is a third above the longest pause. Exit code 1 if anything was said.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.guard.cost import table
from bench.guard.ranks import running
from forkpoint.lab.fault import JOBS, HealthyJob

_PAUSE_S = 6.0
_STALL_S = 8.0
_ROUND_S = 40.0
"""A job of the lab, started anew after that long: starts and ends are where guards come and go."""
_HEALTHY = Path(__file__).with_name("healthy_job.py")
_HEARD = re.compile(r"^HEARD ([\d.]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Soaked:
    """One run of one job."""

    name: str
    ranks: int
    failed: int
    """Ranks that did not end with 0."""
    heard_s: float
    """Rank-seconds in which a guard was there and heard the others."""
    alarms: tuple[str, ...]
    blind: tuple[str, ...]
    """Whatever else guards said."""


def read_logs(name: str, logs: list[str], codes: list[int | None]) -> Soaked:
    said = [line for log in logs for line in log.splitlines() if line.startswith("forkpoint guard:")]
    alarms = tuple(line for line in said if re.match(r"forkpoint guard: 20\d\d-", line))
    return Soaked(
        name=name,
        ranks=len(logs),
        failed=sum(code != 0 for code in codes),
        heard_s=sum(float(match[1]) for log in logs for match in _HEARD.finditer(log)),
        alarms=alarms,
        blind=tuple(line for line in said if line not in alarms),
    )


def soak_healthy(seconds: float, folder: Path) -> list[Soaked]:
    env = {"SOAK_S": str(seconds), "SOAK_PAUSE_S": str(_PAUSE_S), "SOAK_DIR": str(folder)}
    return [_run("healthy_job", _HEALTHY, 4, env, seconds + 120, folder)]


def soak_lab(seconds: float, folder: Path) -> list[Soaked]:
    """All of the lab's jobs in turn, until the time is over."""
    until = time.monotonic() + seconds
    found: list[Soaked] = []
    while time.monotonic() < until:
        job = JOBS[len(found) % len(JOBS)]
        found.append(_soak_job(job, folder / f"{job.name}-{len(found)}"))
    return found


def _soak_job(job: HealthyJob, folder: Path) -> Soaked:
    folder.mkdir(parents=True)
    program = folder / "train.py"
    program.write_text(job.text)
    env = {"STEPS": str(int(_ROUND_S / 0.1)), "PACE": "0.08", "PG_TIMEOUT": "120", "BACKEND": "gloo"}
    return _run(job.name, program, job.world, env, _ROUND_S * 6, folder)


def _run(name: str, program: Path, world: int, env: dict[str, str], limit_s: float, folder: Path) -> Soaked:
    env = {"FORKPOINT": "1", "FORKPOINT_STALL_S": str(_STALL_S)} | env
    with running(["-m", "bench.guard.soak_rank", str(program)], world, folder, env) as job:
        codes = job.wait(limit_s)
        return read_logs(name, [job.log(rank) for rank in range(world)], codes)


def row(name: str, runs: list[Soaked]) -> list[str]:
    minutes = sum(run.heard_s for run in runs) / 60
    said = [str(sum(len(words) for words in column)) for column in ([r.alarms for r in runs], [r.blind for r in runs])]
    return [name, str(len(runs)), f"{minutes:.1f}", *said, str(sum(run.failed for run in runs))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    seconds = parser.parse_args().minutes * 60
    with tempfile.TemporaryDirectory() as base, ThreadPoolExecutor(2) as threads:
        parts = [threads.submit(soak_healthy, seconds, Path(base) / "healthy")]
        parts.append(threads.submit(soak_lab, seconds, Path(base) / "lab"))
        found = [run for part in parts for run in part.result()]
    rows = [row(name, [run for run in found if run.name == name]) for name in dict.fromkeys(run.name for run in found)]
    print(table(("job", "runs", "rank-minutes heard", "alarms", "blind", "ranks failed"), rows))
    print(f"\nload {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    said = [line for run in found for line in (*run.alarms, *run.blind)]
    print("\n".join(dict.fromkeys(said)))
    return int(bool(said) or any(run.failed for run in found) or any(run.heard_s == 0 for run in found))


if __name__ == "__main__":
    sys.exit(main())
