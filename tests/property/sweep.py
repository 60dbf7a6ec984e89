"""Thousands of damaged captures of every case: how many verdicts stay right, weaken, or turn wrong. `make sweep`."""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import forkpoint
from cases import Case, load_cases
from forkpoint.errors import UnreadableInput
from forkpoint.model.verdict import Cause, Verdict
from property.variants import Damage, write_variant

WRONG = ("other cause", "innocent", "crash")
_WITH_SOURCE = 0.5
"""Of the variants are judged with the program that ran: what it says of lines decides verdicts, too."""
OUTCOMES = ("right", "right cause, nobody named", "inconclusive", "unreadable", "vanished", *WRONG)


@dataclass(frozen=True, slots=True)
class Outcome:
    case: str
    seed: int
    what: str
    said: str
    damage: str
    step: str = ""
    """The confidence of a verdict that names a cause."""
    is_among: bool = False
    """Of one that does not: whether the truth is among its first two hypotheses."""


def score(verdict: Verdict | None, case: Case) -> str:
    """Against the truth of the whole evidence: with less of it a verdict may weaken, and nothing else."""
    if verdict is None:
        return "unreadable"
    if not set(verdict.suspects) <= case.guilty:
        return "innocent"
    if verdict.cause is Cause.INCONCLUSIVE:
        return "inconclusive"
    if verdict.cause not in case.causes:
        return "other cause"
    return "right" if verdict.suspects in case.suspects else "right cause, nobody named"


def try_variant(case: Case, seed: int) -> Outcome:
    rng = random.Random(f"{case.number} {seed}")
    with tempfile.TemporaryDirectory() as folder:
        damage, paths = write_variant(case.capture, Path(folder), rng)
        rng.shuffle(paths)
        with_source = rng.random() < _WITH_SOURCE
        verdict = _diagnose(paths, case.capture.parent / "source" if with_source else None)
    if isinstance(verdict, str):
        return Outcome(case.number, seed, "crash", verdict, str(damage))
    what = "vanished" if verdict and _vanished(verdict, case, damage) else score(verdict, case)
    if verdict is None:
        return Outcome(case.number, seed, what, "", str(damage))
    said = f"{verdict.cause} {list(verdict.suspects)} {verdict.confidence} {verdict.summary}"
    said += " (with its source)" if with_source else ""
    step = "" if verdict.cause is Cause.INCONCLUSIVE else f"{verdict.confidence:.2f}"
    return Outcome(case.number, seed, what, said, str(damage), step, is_among(verdict, case))


def is_among(verdict: Verdict, case: Case) -> bool:
    """A cause and, where somebody is at fault, a rank that the truth names are those of one of the first two hypotheses."""
    for hypothesis in verdict.hypotheses[:2]:
        named = {*hypothesis.suspects, *(rank for side in hypothesis.sides for rank in side)}
        who = bool(named & case.guilty) or not case.guilty or (() in case.suspects and not hypothesis.suspects)
        if who and not {hypothesis.cause, *hypothesis.alternatives}.isdisjoint(case.causes):
            return True
    return False


def _vanished(verdict: Verdict, case: Case, damage: Damage) -> bool:
    """Gloo's dumps do not say how many ranks there were: a rank of which nothing is left cannot be missed. Nor do the logs of
    a job that ran to its end tell that it computed something wrong.
    """
    files = {str(p.relative_to(case.capture)) for p in case.capture.rglob("*") if p.is_file()}
    left = files - damage.lost
    gone = [r for r in case.guilty if not any(Path(name).stem.endswith(f"_{r}") for name in left)]
    ran_on = "no-hang" in case.symptoms and not any("trace" in name for name in left)
    return verdict.cause is Cause.HEALTHY and (ran_on or len(gone) == len(case.guilty) > 0)


def _diagnose(paths: list[str], source: Path | None) -> Verdict | str | None:
    """A text where it broke."""
    try:
        program = [str(source)] if source is not None and source.is_dir() else []
        verdict = forkpoint.diagnose(forkpoint.read(paths), source=program) if paths else None
    except UnreadableInput:
        return None
    except Exception as error:  # noqa: BLE001 - whatever breaks is what the sweep looks for
        return f"{type(error).__name__}: {error}"
    return verdict.internal[0].trace if verdict and verdict.internal else verdict


def sweep(cases: tuple[Case, ...], variants: int, seed: int) -> Iterator[Outcome]:
    work = [(cases[i % len(cases)], seed * 1_000_000 + i // len(cases)) for i in range(variants)]
    with ProcessPoolExecutor() as pool:
        yield from pool.map(try_variant, *zip(*work, strict=True), chunksize=8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", nargs="*", help="numbers; all without it")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the figures as JSON, for docs/scored.md")
    options = parser.parse_args()
    cases = tuple(c for c in load_cases() if not options.cases or c.number in options.cases)
    counts: Counter[str] = Counter()
    steps: dict[str, Counter[str]] = {}
    undecided: Counter[str] = Counter()
    for done, outcome in enumerate(sweep(cases, options.variants, options.seed), 1):
        counts[outcome.what] += 1
        if outcome.step:
            steps.setdefault(outcome.step, Counter())[outcome.what] += 1
        elif outcome.what == "inconclusive":
            undecided["among the first two" if outcome.is_among else "not among them"] += 1
        if outcome.what in WRONG:
            print(f"{outcome.what}: case {outcome.case} seed {outcome.seed}: {outcome.said}\n    {outcome.damage}")
        if done % 100 == 0:
            print(f"\r{done} of {options.variants}", end="", file=sys.stderr)
    print(*(f"{what}: {count}" for what, count in counts.most_common()), sep="\n")
    print(f"undecided: {dict(undecided)}", *(f"{step}: {dict(steps[step])}" for step in sorted(steps)), sep="\n")
    if options.write:
        figures = {
            "variants": options.variants,
            "seed": options.seed,
            "counts": {o: counts[o] for o in OUTCOMES},
            "steps": {step: {o: steps[step][o] for o in OUTCOMES if steps[step][o]} for step in sorted(steps)},
            "undecided": dict(sorted(undecided.items())),
        }
        options.write.write_text(json.dumps(figures, indent=1) + "\n")
    sys.exit(any(counts[what] for what in WRONG))


if __name__ == "__main__":
    main()
