"""The recorded cases: what each one's evidence is, and what really happened (by hand, never regenerated)."""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
        world=facts["world"],
        layout=facts["layout"],
        backend=facts["backend"],
        timing=facts["timing"],
        short_of=facts.get("short_of"),
    )
