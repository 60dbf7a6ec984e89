"""`python -m bench.attach [--nccl]`: live jobs that hang, `forkpoint attach` beside each, and whether it names rank and line.

On gloo, or on NCCL with all ranks on one GPU.

Also in a process that may not use ptrace (a seccomp filter, as containers have), and on a job of another user (needs root).
Each job's processes must be the same and in the same state before and after.
"""

import argparse
import json
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.attach.hangs import (
    HANGS,
    HEALTHY,
    NCCL_HANGS,
    NCCL_PROGRAMS,
    NCCL_SECOND,
    NCCL_THIRD,
    PROGRAMS,
    SECOND,
    THIRD,
    Hang,
    running,
)
from forkpoint.model.world import name_ranks

_PORT = 29610


@dataclass(frozen=True)
class Measured:
    hang: Hang
    verdict: dict[str, Any]
    said: str
    seconds: float
    cpu_s: float
    """Of `attach` and of what it starts."""
    load: float
    """Of the machine, when `attach` was begun."""
    undisturbed: bool
    """Its processes are the same; where what it waits for can be ended, it then ended well."""

    @property
    def named(self) -> bool:
        """The rank: as suspect, or, where the cause is not decided, in the first reading."""
        if self.hang is HEALTHY:
            return self.verdict["cause"] == "healthy" and not self.verdict["suspects"]
        likeliest = [*self.verdict["hypotheses"][:1]]
        return self.verdict["suspects"] == [self.hang.who] or any(
            one["suspects"] == [self.hang.who] for one in likeliest
        )

    @property
    def lined(self) -> bool:
        """Its line is a site, or in the sentence, or in what is cited."""
        if self.hang is HEALTHY:
            return not self.verdict["sites"]
        marked = f"# here: {self.hang.kind}"
        program = self.hang.program
        places = [f"{program.name}:{n}" for n, text in enumerate(program.read_text().splitlines(), 1) if marked in text]
        sites = [f"{site['file'].rpartition('/')[2]}:{site['line']}" for site in self.verdict["sites"]]
        said = (
            self.verdict["headline"],
            self.verdict["summary"],
            *sites,
            *(evidence["says"] for evidence in self.verdict["evidence"]),
        )
        return any(place in text for place in places for text in said)


def measure(hang: Hang, port: int, starts_s: float, keep: str | None) -> Measured:
    kept = ("--keep", f"{keep}/{hang.kind}", "--log-level=info", f"--log-file={keep}/{hang.kind}.log") if keep else ()
    with running(hang, port, starts_s) as job:
        before = job.states()
        began, used, load = time.monotonic(), _cpu_s(), os.getloadavg()[0]
        done = job.attach("--job", str(port), "--json", *kept)
        seconds, cpu_s = time.monotonic() - began, _cpu_s() - used
        undisturbed = job.states() == before and len(before) >= hang.world and (hang.release is None or job.goes_on())
    if not done.stdout:
        raise RuntimeError(f"attach ended with {done.returncode}: {done.stderr[-300:]!r}")
    return Measured(hang, json.loads(done.stdout), done.stderr, seconds, cpu_s, load, undisturbed)


def _cpu_s() -> float:
    """Of children that were waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nccl", action="store_true", help="on a machine with a GPU")
    sets = parser.add_mutually_exclusive_group()
    for name, says in (
        ("programs", "programs of different styles instead of job.py"),
        ("second", "twelve more, half on NCCL"),
        ("third", "twelve more, written before attach was read"),
    ):
        sets.add_argument(f"--{name}", dest="set", action="store_const", const=name, default="ways", help=says)
    parser.add_argument("--keep", metavar="DIR", help="keep each job's evidence and a log there")
    parser.add_argument(
        "--only", action="append", default=[], help="hangs whose name has this in it; may be given again"
    )
    parser.add_argument("--starts-s", type=float, default=600.0, help="how long a job may take to begin (default: 600)")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    hangs = {"ways": (*HANGS, HEALTHY), "programs": PROGRAMS, "second": SECOND, "third": THIRD}
    on_nccl = {"ways": NCCL_HANGS, "programs": NCCL_PROGRAMS, "second": NCCL_SECOND, "third": NCCL_THIRD}
    port = _PORT + 50 * list(hangs).index(args.set)  # sets may run at the same time
    if args.keep:
        Path(args.keep).mkdir(parents=True, exist_ok=True)
    print("| hang | says | rank | line | seconds (load) | CPU s | job as before |\n|---|---|---|---|---|---|---|")
    for number, hang in enumerate((on_nccl if args.nccl else hangs)[args.set]):
        if args.only and not any(part in hang.name for part in args.only):
            continue
        if hang.other_user and os.geteuid() != 0:
            print(f"| {hang.name} | not run: needs root | | | | | |")
            continue
        try:
            found = measure(hang, port + number, args.starts_s, args.keep)
        except (TimeoutError, RuntimeError) as error:
            print(f"| {hang.name} | no answer: {error} | | | | | |", flush=True)
            continue
        suspects = name_ranks(found.verdict["suspects"]) if found.verdict["suspects"] else "no suspect"
        words = (found.verdict["cause"], suspects)
        cells = (
            found.named,
            found.lined,
            f"{found.seconds:.1f} ({found.load:.0f})",
            f"{found.cpu_s:.1f}",
            found.undisturbed,
        )
        told = " | ".join(cell if isinstance(cell, str) else "yes" if cell else "**no**" for cell in cells)
        print(f"| {hang.name} | {', '.join(words)} | {told} |", flush=True)
        if args.verbose:
            print(found.said, json.dumps(found.verdict, indent=1)[:6000], file=sys.stderr)


if __name__ == "__main__":
    main()
