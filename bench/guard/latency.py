"""How soon the guard speaks: real gloo jobs in which something goes wrong, in a random step on a random rank.

    python -m bench.guard.latency --ranks 4 8 --repeats 3

Seconds from the wrong call (or the moment of the kill) to the alarm on rank 0's stderr, and whether cause and ranks are
right. The job is tests/guard/job.py. Rank 0 is left alone where its death ends the guard that speaks (docs/guard.md).
"""

import argparse
import json
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.guard.cost import table
from bench.guard.ranks import ROOT, Running, running

_JOB = ROOT / "tests" / "guard" / "job.py"
_LIMIT_S = 90.0
_STALL_S = 10.0
_NEVER_S = 600.0
_ALARM = re.compile(r"^forkpoint guard: 20\S+Z ", re.MULTILINE)
_WRONG = re.compile(r"^WRONG ([\d.]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    how: str
    causes: frozenset[str]
    target_s: float | None = None
    """None: none is set."""
    ranks: tuple[int, ...] | None = None
    """On which it may happen; None: on any."""
    spares_zero: bool = False


FAULTS = (
    Fault("another call", "broadcast", frozenset({"divergent-path"}), 5.0),
    Fault("another dtype, no hang", "dtype", frozenset({"metadata-mismatch"}), 5.0),
    Fault("order of groups", "order", frozenset({"order-inversion", "divergent-path"}), 5.0, ranks=(0, 1)),
    Fault("killed", "kill", frozenset({"rank-lost"}), spares_zero=True),
    Fault("raised", "raise", frozenset({"divergent-path"})),
    Fault("SIGSTOP", "stop", frozenset({"rank-lost"}), spares_zero=True),
    Fault(f"late, threshold {_STALL_S:.0f} s", "sleep", frozenset({"host-stall"}), _STALL_S + 5.0),
)


@dataclass(frozen=True, slots=True)
class Alarmed:
    """One run."""

    who: int
    seconds: float | None
    """From the wrong call to the alarm; None: none came."""
    cause: str = ""
    suspects: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """Of several runs with one fault."""

    runs: int
    median_s: float | None
    worst_s: float | None
    silent: int
    """Runs without an alarm."""
    right_cause: int
    right_ranks: int
    accused: int
    """Runs in which an innocent rank was named."""


def score(fault: Fault, runs: Sequence[Alarmed]) -> Score:
    told = [run for run in runs if run.seconds is not None]
    seconds = [run.seconds for run in told if run.seconds is not None]
    # In an inversion of two ranks' order either may be called the odd one.
    guilty = [set(fault.ranks) if fault.ranks else {run.who} for run in told]
    return Score(
        runs=len(runs),
        median_s=statistics.median(seconds) if seconds else None,
        worst_s=max(seconds, default=None),
        silent=len(runs) - len(told),
        right_cause=sum(run.cause in fault.causes for run in told),
        right_ranks=sum(bool(run.suspects) and set(run.suspects) <= g for run, g in zip(told, guilty, strict=True)),
        accused=sum(not set(run.suspects) <= g for run, g in zip(told, guilty, strict=True)),
    )


def run_once(fault: Fault, world: int, chance: random.Random, folder: Path) -> Alarmed:
    who = chance.choice(fault.ranks or range(int(fault.spares_zero), world))
    told = {
        "how": fault.how,
        "who": who,
        "at": chance.randrange(20, 120),
        "steps": 2000,
        "seconds": _NEVER_S,
        "stepped": False,
        # Mode `dump`, for the verdict it leaves.
        "settings": {"mode": "dump", "stall_s": _STALL_S if fault.how == "sleep" else _NEVER_S, "folder": "alarms"},
    }
    with running([str(_JOB)], world, folder, {"GUARD_JOB": json.dumps(told), "FORKPOINT": ""}) as job:
        at = _alarm_at(job)
        wrong = _WRONG.search(job.log(who))
        if at is None or wrong is None:
            return Alarmed(who, None)
        verdict = json.loads(next(folder.glob("alarms/*/verdict.json")).read_text())
    return Alarmed(who, at - float(wrong[1]), verdict["cause"], tuple(verdict["suspects"]))


def _alarm_at(job: Running) -> float | None:
    """When rank 0 spoke; None where it does not in time."""
    until = time.monotonic() + _LIMIT_S
    while time.monotonic() < until:
        if _ALARM.search(job.log(0)):
            return time.time()
        if job.is_over():
            return time.time() if _ALARM.search(job.log(0)) else None
        time.sleep(0.05)
    return None


def row(fault: Fault, world: int, found: Score) -> list[str]:
    seconds = [f"{s:.1f} s" if s is not None else "-" for s in (found.median_s, found.worst_s)]
    counts = [f"{count} of {found.runs}" for count in (found.right_cause, found.right_ranks)]
    target = f"{fault.target_s:.0f} s" if fault.target_s is not None else "-"
    return [fault.name, str(world), *seconds, target, *counts, str(found.accused), str(found.silent)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chance = random.Random(args.seed)
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as base:
        for world in args.ranks:
            for fault in FAULTS:
                folders = [Path(base) / f"{world}-{fault.how}-{number}" for number in range(args.repeats)]
                runs = [run_once(fault, world, chance, folder) for folder in folders]
                rows.append(row(fault, world, score(fault, runs)))
    head = ("fault", "ranks", "median", "worst", "target", "cause right", "ranks right", "innocent named", "silent")
    print(f"{table(head, rows)}\n\nload {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
