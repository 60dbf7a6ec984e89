"""CPU, memory and words of the guard of one rank, measured in small gloo jobs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.guard.ranks import running

_LIMIT_S = 240.0


@dataclass(frozen=True, slots=True)
class Share:
    """Per second."""

    cpu: float
    """Seconds of the guard's thread."""
    requests: float
    sent: float
    received: float
    """Bytes over its store: keys and values, without TCP's own."""


@dataclass(frozen=True, slots=True)
class RankCost:
    busy: Share
    """While calls are made and read."""
    idle: Share
    """While it only polls."""
    grown_mb: float
    """Memory of this process alone, after over before the guard was imported."""
    traced_mb: float
    """Of it what Python allocated; 0 where it was not traced."""
    answer_bytes: int
    """What this rank hands over when it is asked: dump with stacks."""


@dataclass(frozen=True, slots=True)
class Setup:
    world: int = 2
    groups: int = 1
    ring: int = 2000
    guarded: bool = True
    traced: bool = False


def measure(setup: Setup, seconds: float, folder: Path) -> tuple[RankCost, ...]:
    """By rank."""
    env = {
        "GROUPS": str(setup.groups),
        "SECONDS": str(seconds),
        "WITH_GUARD": str(int(setup.guarded)),
        "TRACED": str(int(setup.traced)),
        "TORCH_FR_BUFFER_SIZE": str(setup.ring),
    }
    with running(["-m", "bench.guard.rank_job"], setup.world, folder, env) as job:
        codes = job.wait(_LIMIT_S)
        if any(code != 0 for code in codes):
            raise RuntimeError(f"the job ended with {codes}:\n{job.log(0)[-2000:]}")
        return tuple(read(json.loads(job.log(rank).splitlines()[-1])) for rank in range(setup.world))


def read(told: dict[str, Any]) -> RankCost:
    return RankCost(
        busy=Share(**told["busy"]),
        idle=Share(**told["idle"]),
        grown_mb=told["grown_kb"] / 1024,
        traced_mb=told["traced_kb"] / 1024,
        answer_bytes=told.get("answer_bytes", 0),
    )
