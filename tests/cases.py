"""The recorded cases: what each one's evidence is, and what really happened (by hand, never regenerated).

`read_case` and `examine_case` are remembered for the whole run: what they return is frozen, so tests share it.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import forkpoint
from forkpoint.model.capture import Capture
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import Examination, examine

ROOT = Path(__file__).parent.parent
CASES = ROOT / "cases"


@dataclass(frozen=True, slots=True)
class Case:
    number: str
    capture: Path
    causes: tuple[str, ...]
    """Acceptable, best first."""
    suspects: tuple[tuple[int, ...], ...]
    """Acceptable answers; an empty one means that naming nobody is right."""
    seqs: tuple[int, ...]
    """Acceptable fork points; empty where the evidence cannot show it."""
    symptoms: tuple[str, ...]
    actions: tuple[str, ...]
    group: str | None
    world: int
    layout: str
    backend: str
    timing: bool
    short_of: str | None
    """What forkpoint honestly does not reach here, and why."""

    @property
    def guilty(self) -> frozenset[int]:
        return frozenset(r for answer in self.suspects for r in answer)


@cache
def load_cases() -> tuple[Case, ...]:
    return tuple(_load(folder) for folder in sorted(CASES.glob("[0-9]*")) if (folder / "capture").is_dir())


def _load(folder: Path) -> Case:
    facts = tomllib.loads((folder / "case.toml").read_text())
    truth = facts["truth"]
    causes = truth["cause"] if isinstance(truth["cause"], list) else [truth["cause"]]
    return Case(
        number=folder.name,
        capture=folder / "capture",
        causes=tuple(causes),
        suspects=tuple(tuple(sorted(answer)) for answer in truth["suspects"]) or ((),),
        seqs=tuple(truth.get("seq", [])),
        symptoms=tuple(truth["symptom"] if isinstance(truth["symptom"], list) else [truth["symptom"]]),
        actions=tuple(truth.get("action", ())),
        group=truth.get("group"),
        world=facts["world"],
        layout=facts["layout"],
        backend=facts["backend"],
        timing=facts["timing"],
        short_of=facts.get("short_of"),
    )


@cache
def read_case(number: str) -> Capture:
    return forkpoint.read([str(CASES / number / "capture")])


@cache
def examine_case(number: str, *, source: bool = False) -> Examination:
    """`source`: with the program that ran, where the case has it."""
    program = CASES / number / "source"
    return examine(read_case(number), [str(program)] if source and program.is_dir() else ())


def verdict_of(number: str, *, source: bool = False) -> Verdict:
    return examine_case(number, source=source).verdict
