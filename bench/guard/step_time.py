"""Step time of a small DDP loop with the guard over without, and with TORCH_DISTRIBUTED_DEBUG=DETAIL beside it."""

import json
import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from bench.guard.ranks import running

_LIMIT_S = 1200.0
Block = tuple[float, float]
"""Seconds and CPU seconds per step."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of pairs of blocks that ran one after the other."""

    median: float
    low: float
    high: float
    """The median of all pairs that there could be lies between these, with 95 % certainty."""
    pairs: int

    @classmethod
    def of(cls, guarded: Sequence[float], plain: Sequence[float]) -> Self:
        ratios = sorted(one / other for one, other in zip(guarded, plain, strict=True))
        count = len(ratios)
        # The median's interval by order statistics: it assumes nothing about how noise is distributed.
        reach = 0.98 * math.sqrt(count)
        low, high = max(int(count / 2 - reach), 0), min(math.ceil(count / 2 + reach), count - 1)
        return cls(statistics.median(ratios), ratios[low], ratios[high], count)


@dataclass(frozen=True, slots=True)
class StepTime:
    world: int
    plain_ms: float
    wall: Ratio
    cpu: Ratio
    """Of the whole process, the guard's thread in it: what other programs do on the machine hardly touches this."""
    detail: float
    """TORCH_DISTRIBUTED_DEBUG=DETAIL over none: the step with its five calls by hand, in jobs of their own."""
    load: float


def measure(world: int, pairs: int, block_s: float, folder: Path) -> StepTime:
    told = _run(world, pairs, block_s, folder / "guarded", {"WITH_GUARD": "1"})
    load = os.getloadavg()[0]
    guarded, plain = (_columns(told[name]) for name in ("guarded", "plain"))
    return StepTime(
        world=world,
        plain_ms=1000 * statistics.median(plain[0]),
        wall=Ratio.of(guarded[0], plain[0]),
        cpu=Ratio.of(guarded[1], plain[1]),
        detail=_by_hand(world, folder / "detail", "DETAIL") / _by_hand(world, folder / "none", "OFF"),
        load=load,
    )


def _by_hand(world: int, folder: Path, level: str) -> float:
    env = {"WITH_GUARD": "0", "BY_HAND": "1", "TORCH_DISTRIBUTED_DEBUG": level}
    return statistics.median(_columns(_run(world, 6, 0.5, folder, env)["plain"])[0])


def _run(world: int, pairs: int, block_s: float, folder: Path, env: dict[str, str]) -> dict[str, Any]:
    env = {"BLOCK_S": str(block_s), "PAIRS": str(pairs)} | env
    with running(["-m", "bench.guard.step_job"], world, folder, env) as job:
        codes = job.wait(_LIMIT_S)
        if any(codes):
            raise RuntimeError(f"the job ended with {codes}:\n{job.log(0)[-2000:]}")
        told: dict[str, Any] = json.loads(job.log(0).splitlines()[-1])
    if told["blind"]:
        raise RuntimeError(f"the guard was blind: {told['blind']}")
    return told


def _columns(blocks: Sequence[Block]) -> tuple[list[float], list[float]]:
    return [wall for wall, _ in blocks], [cpu for _, cpu in blocks]
