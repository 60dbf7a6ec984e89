"""Which wrong verdicts does replay refuse? Each guard of each detector is turned off, one at a time.

    PYTHONPATH=tests:. python -m property.guards [--dropped 2] [--faults 27] [--write docs/guards.json]

A guard is a condition that keeps a detector from speaking: an `if` that only returns, or one term of an `and`. With one
turned off a detector claims more. Of the verdicts that become wrong by it (another cause than the truth allows, or an
innocent rank), those count as refused that do not stand once findings are replayed.
"""

import argparse
import ast
import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import forkpoint
from bench.scale.accuracy import Damage, try_capture
from cases import load_cases
from forkpoint.diverge import find_divergences, find_partings
from forkpoint.diverge.align import align
from forkpoint.errors import ForkpointError
from forkpoint.judge import detectors
from forkpoint.judge.hypotheses.repairs import is_explained
from forkpoint.judge.verdict import weigh
from forkpoint.model.capture import Capture
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Finding

_ALWAYS = frozenset({"inconclusive"})


@dataclass(frozen=True, slots=True)
class Subject:
    """An incident with its truth."""

    incident: Incident
    causes: frozenset[str]
    guilty: frozenset[int]

    def is_wrong(self, findings: list[Finding]) -> bool:
        if not findings:
            return False
        best = min(findings, key=weigh)
        return best.cause not in self.causes | _ALWAYS or not set(best.suspects) <= self.guilty


@dataclass(frozen=True, slots=True)
class Guard:
    detector: str
    line: int
    find: detectors.Detector


def make_guards() -> Iterator[Guard]:
    for find in detectors.DETECTORS:
        module = __import__(find.__module__, fromlist=["find"])
        source = Path(module.__file__ or "").read_text("utf-8")
        for number in range(sum(1 for _ in _places(ast.parse(source)))):
            tree = ast.parse(source)
            line, turn_off = list(_places(tree))[number]
            turn_off()
            yield Guard(find.__module__.rpartition(".")[2], line, _load(tree, module).find)


def _places(tree: ast.AST) -> Iterator[tuple[int, Callable[[], None]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and all(isinstance(s, ast.Return) for s in node.body) and not node.orelse:
            yield node.lineno, lambda node=node: setattr(node, "test", ast.Constant(value=False))
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for at, term in enumerate(node.values):
                if not any(isinstance(inner, ast.NamedExpr) for inner in ast.walk(term)):
                    yield term.lineno, lambda node=node, at=at: node.values.__setitem__(at, ast.Constant(value=True))


def _load(tree: ast.Module, original: ModuleType) -> ModuleType:
    changed = ModuleType(original.__name__)
    changed.__file__ = original.__file__
    code = compile(ast.fix_missing_locations(tree), original.__file__ or "", "exec")
    exec(code, changed.__dict__)
    return changed


def read_subjects(dropped: int, faults: int, seed: int) -> Iterator[Subject]:
    """Every case, variants of it with files left out, and planted faults with damaged dumps."""
    for case in load_cases():
        causes, guilty = frozenset(case.causes), case.guilty
        yield Subject(_incident(forkpoint.read([str(case.capture)])), causes, guilty)
        for number in range(dropped):
            chance = random.Random(f"{seed} {case.number} {number}")
            if (capture := _dropped(case.capture, chance)) is not None:
                yield Subject(_incident(capture), causes, guilty)
    for world, capture, _ in try_capture(64, faults, seed, Damage(0.2, 0.1)):
        yield Subject(_incident(capture), world.causes, frozenset({world.rank}))


def _dropped(folder: Path, chance: random.Random) -> Capture | None:
    share = chance.choice((0.1, 0.25, 0.5))
    kept = [p for p in sorted(folder.rglob("*")) if p.is_file() and chance.random() > share]
    with tempfile.TemporaryDirectory() as place:
        for file in kept:
            copy = Path(place) / file.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
        try:
            return forkpoint.read([place]) if kept else None
        except ForkpointError:
            return None


def _incident(capture: Capture) -> Incident:
    timeline = align(capture)
    return Incident.of(capture, timeline, find_divergences(timeline, find_partings(timeline)))


def measure(subjects: list[Subject]) -> dict[str, Counter[str]]:
    """By detector: guards, verdicts that became wrong, and those of them that replay refuses."""
    usual = [{find: list(find(s.incident)) for find in detectors.DETECTORS} for s in subjects]
    names = {find.__module__.rpartition(".")[2]: find for find in detectors.DETECTORS}
    found: dict[str, Counter[str]] = {}
    for guard in make_guards():
        tally = found.setdefault(guard.detector, Counter())
        tally["guards"] += 1
        for subject, by_detector in zip(subjects, usual, strict=True):
            others = [f for find, told in by_detector.items() if find is not names[guard.detector] for f in told]
            before = [f for told in by_detector.values() for f in told]
            try:
                claimed = [*others, *guard.find(subject.incident)]
            except Exception:  # noqa: BLE001 what a guard protects may not even exist: no verdict comes of it
                tally["broke"] += 1
                continue
            if subject.is_wrong(claimed) and not subject.is_wrong(before):
                tally["wrong"] += 1
                kept = [f for f in claimed if is_explained(f, subject.incident)]
                tally["refused"] += not subject.is_wrong(kept)
                tally["replayed"] += bool(subject.incident.timeline.stands)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dropped", type=int, default=2, help="variants with files left out, of each case")
    parser.add_argument("--faults", type=int, default=27)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    subjects = list(read_subjects(args.dropped, args.faults, args.seed))
    found = measure(subjects)
    total = sum(found.values(), Counter[str]())
    for name, tally in [*sorted(found.items()), ("all", total)]:
        share = f"{tally['refused'] / tally['wrong']:.0%}" if tally["wrong"] else "-"
        print(
            f"{name:20} {tally['guards']:4} guards {tally['wrong']:5} wrong {tally['refused']:5} refused {share:>5}"
            f"  ({tally['replayed']} with waiting calls)"
        )
    if args.write:
        document = {"incidents": len(subjects), "seed": args.seed, "detectors": {k: dict(v) for k, v in found.items()}}
        args.write.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
