"""`python -m bench.attach [--nccl]`: live jobs that hang, `forkpoint attach` beside each, and whether it names rank and line.

On gloo, or on NCCL with all ranks on one GPU.

Also in a process that may not use ptrace (a seccomp filter, as containers have), and on a job of another user (needs root).
Each job's processes must be the same and in the same state before and after.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from bench.attach.hangs import HANGS, HEALTHY, JOB, NCCL_HANGS, WHO, WORLD, Hang, forbid_ptrace, running
from forkpoint.model.world import name_ranks


@dataclass(frozen=True)
class Measured:
    hang: Hang
    verdict: dict[str, Any]
    said: str
    seconds: float
    undisturbed: bool

    @property
    def named(self) -> bool:
        """The rank: as suspect, or, where the cause is not decided, in the first reading."""
        if self.hang is HEALTHY:
            return self.verdict["cause"] == "healthy" and not self.verdict["suspects"]
        likeliest = [*self.verdict["hypotheses"][:1]]
        return self.verdict["suspects"] == [WHO] or any(one["suspects"] == [WHO] for one in likeliest)

    @property
    def lined(self) -> bool:
        """Its line is a site, or in the sentence, or in what is cited."""
        if self.hang is HEALTHY:
            return not self.verdict["sites"]
        marked = f"# here: {self.hang.kind}"
        places = [f"job.py:{n}" for n, text in enumerate(JOB.read_text().splitlines(), 1) if marked in text]
        sites = [f"{site['file'].rpartition('/')[2]}:{site['line']}" for site in self.verdict["sites"]]
        said = (
            self.verdict["headline"],
            self.verdict["summary"],
            *sites,
            *(evidence["says"] for evidence in self.verdict["evidence"]),
        )
        return any(place in text for place in places for text in said)


def measure(hang: Hang, port: int) -> Measured:
    with running(hang, port) as job:
        before = job.states()
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "forkpoint", "attach", "--job", str(port), "--json"],
            capture_output=True, text=True, check=False, preexec_fn=forbid_ptrace if hang.without_ptrace else None,
        )  # fmt: skip
        seconds = time.monotonic() - began
        undisturbed = job.states() == before and len(before) == WORLD
    if not done.stdout:
        raise RuntimeError(done.stderr)
    return Measured(hang, json.loads(done.stdout), done.stderr, seconds, undisturbed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nccl", action="store_true", help="on a machine with a GPU")
    parser.add_argument("--only", help="hangs whose name has this in it")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    print("| hang of rank 2 | says | rank | line | seconds | job as before |\n|---|---|---|---|---|---|")
    for number, hang in enumerate(NCCL_HANGS if args.nccl else (*HANGS, HEALTHY)):
        if args.only and args.only not in hang.name:
            continue
        if hang.other_user and os.geteuid() != 0:
            print(f"| {hang.name} | not run: needs root | | | | |")
            continue
        found = measure(hang, 29610 + number)
        suspects = name_ranks(found.verdict["suspects"]) if found.verdict["suspects"] else "no suspect"
        words = (found.verdict["cause"], suspects)
        cells = (found.named, found.lined, f"{found.seconds:.1f}", found.undisturbed)
        told = " | ".join(cell if isinstance(cell, str) else "yes" if cell else "**no**" for cell in cells)
        print(f"| {hang.name} | {', '.join(words)} | {told} |", flush=True)
        if args.verbose:
            print(found.said, json.dumps(found.verdict, indent=1)[:6000], file=sys.stderr)


if __name__ == "__main__":
    main()
