"""How one job is run. Needs only Python: cases are recorded where there is only a checkout and torch."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Literal

Backend = Literal["gloo", "nccl"]


@dataclass(frozen=True, slots=True)
class Signal:
    """Sent from outside to one rank."""

    rank: int
    signal: Signals
    when: str
    """As soon as the rank's log holds this."""


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job and what happens to it."""

    name: str
    source: Path
    """A folder with train.py."""
    world: int
    env: Mapping[str, str]
    signals: tuple[Signal, ...] = ()
    absent: tuple[int, ...] = ()
    """Ranks that are never started."""
    timing: bool = False
    buffer: int = 2000
    stacks_at: float | None = None
    """For jobs that end before any dump could be seen."""
    self_dump: bool = False
    """The job writes its own trace and ends by itself."""
    dump_at_end: bool = False


def read_plan(case: Path) -> JobPlan:
    """How to run the job of a case again."""
    facts = tomllib.loads((case / "case.toml").read_text())
    return JobPlan(
        name=case.name,
        source=case / "source",
        world=facts["world"],
        env={key: str(value) for key, value in facts.get("env", {}).items()},
        timing=facts.get("timing", False),
        buffer=facts.get("buffer", 2000),
        stacks_at=facts.get("stacks_at"),
        self_dump=facts.get("self_dump", False),
    )
