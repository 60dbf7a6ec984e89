"""Rehearses programs with a latent bug, their repaired versions and healthy programs, and prints a table.

    python -m bench.rehearse.measure                     # all of tests/rehearse/programs
    python -m bench.rehearse.measure --trials 8 trl_4041 # some

A bug is found if at least one trial parts, at one of the lines of the program that are marked `# here`. A repaired or
healthy program must not part at all.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from forkpoint.rehearse.model import Rehearsal
from forkpoint.rehearse.ranks import WarmStart
from forkpoint.rehearse.rehearsal import RehearsalSettings, rehearse
from forkpoint.rehearse.render import find_hazards
from forkpoint.rehearse.run import common_environ, plan_program

_PROGRAMS = Path(__file__).parents[2] / "tests" / "rehearse" / "programs"
_MARK = "# here"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    trials: int
    seconds: float
    places: tuple[str, ...]
    """At which ranks part, with the kinds that showed it."""
    found: bool | None
    """None: there is nothing to find."""
    right_line: bool
    causes: tuple[str, ...]
    ranks_right: bool


def measure(script: Path, settings: RehearsalSettings) -> Row:
    lines = script.read_text().splitlines()
    marked = {number for number, line in enumerate(lines, 1) if _MARK in line}
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        shutil.copy(script, "train.py")
        program = plan_program([sys.executable, "train.py"], 4, os.environ)
        told = rehearse(program, settings, _say_nothing, lambda _: None)
    return _row(script.stem, told, marked)


def _say_nothing(done: int, total: int, what: str) -> None:
    """Rows tell enough."""


def _row(name: str, told: Rehearsal, marked: set[int]) -> Row:
    hazards = find_hazards(told.results)
    here = [h for h in hazards if h.place.startswith("train.py:") and int(h.place.partition(":")[2]) in marked]
    first = [result for hazard in here or hazards for result in hazard.results]
    return Row(
        name=name,
        trials=len(told.results),
        seconds=told.seconds,
        places=tuple(f"{h.place} ({', '.join(h.kinds)})" for h in hazards),
        found=bool(hazards) if marked else None,
        right_line=bool(here),
        causes=tuple(dict.fromkeys(str((r.verdict or {}).get("cause", "-")) for r in first)),
        ranks_right=all((r.verdict or {}).get("suspects") == [*r.trial.ranks] for r in first) if first else False,
    )


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of programs (default: all)")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--only", default="", help="kinds, separated by commas (default: all)")
    parser.add_argument("--minutes", type=float, default=30)
    args = parser.parse_args()
    scripts = [path for path in sorted(_PROGRAMS.glob("**/*.py")) if not args.names or path.stem in args.names]
    print("| program | trials | seconds | parts at | line | cause | rank |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    starter = WarmStart(sys.executable, common_environ(os.environ))
    settings = RehearsalSettings(args.minutes, args.trials, tuple(filter(None, args.only.split(","))), starter=starter)
    rows: list[Row] = []
    for script in scripts:
        began = time.monotonic()
        row = measure(script, settings)
        rows.append(row)
        told = [
            row.name,
            str(row.trials),
            f"{time.monotonic() - began:.0f}",
            "; ".join(row.places) or "-",
        ]
        told += ["right" if row.right_line else "-", ", ".join(row.causes) or "-", "right" if row.ranks_right else "-"]
        print(f"| {' | '.join(told)} |", flush=True)
    starter.end()
    bugs = [row for row in rows if row.found is not None]
    print(f"\n{sum(row.right_line for row in bugs)} of {len(bugs)} bugs found with their line, "
          f"{sum(bool(row.found) for row in bugs)} found at all; "
          f"{sum(bool(row.places) for row in rows if row.found is None)} of {len(rows) - len(bugs)} others part")  # fmt: skip
    print(f"{sum(row.trials for row in rows)} trials, {_cpu_s():.0f} CPU seconds in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
