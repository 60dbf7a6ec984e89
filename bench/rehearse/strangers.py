"""Rehearses programs with a truth.toml beside them and says which are found, or that their fixed versions stay together.

    python -m bench.rehearse.strangers FOLDER...            # FOLDER/train.py, FOLDER/truth.toml
    python -m bench.rehearse.strangers --fixed FOLDER...    # FOLDER/fixed/train.py: nothing may part

Found: a trial parts, and its verdict has an acceptable cause, names the disturbed rank, and the fork or the first site is one of
the truth's lines. A rehearsal ends as soon as that is so; `--whole` goes on for all the time.
"""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import tomllib
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forkpoint.rehearse.model import TrialOutcome, TrialResult
from forkpoint.rehearse.ranks import WarmStart
from forkpoint.rehearse.rehearsal import RehearsalSettings, rehearse
from forkpoint.rehearse.render import place_of
from forkpoint.rehearse.run import common_environ, plan_program


@dataclass(frozen=True, slots=True)
class Truth:
    causes: tuple[str, ...]
    sites: tuple[tuple[str, int, int], ...]
    command: tuple[str, ...]

    def has_line(self, place: str) -> bool:
        file, _, line = place.rpartition(":")
        return any(file == name and first <= int(line) <= last for name, first, last in self.sites)


@dataclass(frozen=True, slots=True)
class Score:
    """Of one trial that parts."""

    rank: bool
    cause: bool
    line: bool
    """The fork, or the engine's first site, is one of the truth's lines."""

    @property
    def complete(self) -> bool:
        return self.rank and self.cause and self.line


class _FoundError(Exception):
    """Ends a rehearsal whose bug is found."""


def read_truth(path: Path) -> Truth:
    told: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    return Truth(tuple(told["cause"]), tuple((f, a, b) for f, a, b in told["sites"]), tuple(shlex.split(told["run"])))


def score(result: TrialResult, truth: Truth) -> Score:
    verdict = result.verdict or {}
    sites = [f"{site['file']}:{site['line']}" for site in verdict.get("sites", [])[:1]]
    return Score(
        rank=verdict.get("suspects") == [*result.trial.ranks],
        cause=verdict.get("cause") in truth.causes,
        line=any(truth.has_line(place) for place in [place_of(result), *sites] if place[-1].isdigit()),
    )


def measure(folder: Path, settings: RehearsalSettings, *, fixed: bool, whole: bool) -> list[Score]:
    """The scores of those trials that part; every trial is printed."""
    truth = read_truth(folder / "truth.toml")
    scores: list[Score] = []

    def hear(result: TrialResult) -> None:
        print(
            f"   {result.trial.number:>3} {result.outcome:<11} {result.seconds:5.1f} s {result.trial.name} at {result.trial.at}",
            flush=True,
        )
        if result.outcome is not TrialOutcome.PARTS:
            print(f"       {result.says[:160]}", flush=True)
            return
        scores.append(score(result, truth))
        verdict = result.verdict or {}
        sites = [f"{s['file']}:{s['line']}" for s in verdict.get("sites", [])]
        print(f"       {scores[-1]}\n       {place_of(result)}, fork {result.fork}, {verdict.get('cause')} of {verdict.get('suspects')}, "
              f"sites {sites}\n       {result.says}", flush=True)  # fmt: skip
        if scores[-1].complete and not (whole or fixed):
            raise _FoundError

    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch, "work")
        shutil.copytree(
            folder / "fixed" if fixed else folder, work, ignore=shutil.ignore_patterns("fixed", "truth.toml")
        )
        with chdir(work), suppress(_FoundError):
            program = plan_program([sys.executable, *truth.command[truth.command.index("train.py") :]], 4, os.environ)
            told = rehearse(program, settings, _say_nothing, hear)
            print(f"   {len(told.results)} of {len(told.plan)} planned trials, {told.seconds:.0f} s", flush=True)
    return scores


def _say_nothing(done: int, total: int, what: str) -> None:
    """Every trial is printed as it ends."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--trials", type=int, default=None)
    parser.add_argument("--only", default="", help="kinds, separated by commas (default: all)")
    args = parser.parse_args()
    starter = WarmStart(sys.executable, common_environ(os.environ))
    settings = RehearsalSettings(args.minutes, args.trials, tuple(filter(None, args.only.split(","))), starter=starter)
    for folder in args.folders:
        print(f"{folder.name}{' fixed' if args.fixed else ''}", flush=True)
        try:
            scores = measure(folder.resolve(), settings, fixed=args.fixed, whole=args.whole)
        except Exception as error:  # noqa: BLE001 one program that cannot be rehearsed must not end the others
            print(f"   {type(error).__name__}: {error}", flush=True)
            continue
        best = max(scores, key=lambda one: (one.complete, one.rank + one.cause + one.line), default=None)
        print(f"=> {folder.name}: {len(scores)} part{'' if best is None else f', best {best}'}", flush=True)
    starter.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
