"""Hosts that are suspects more often than chance explains, across different jobs and forks.

Only incidents that code alone does not explain count, and attempts of one job at one fork count once. If no host were
worse than another, each that took part would be the suspect equally often; the sum of these chances is the expected count.
The odds are the binomial tail with that mean, which is never smaller than the true one (Hoeffding 1956). Among many hosts
some look bad by luck: `by_luck` says how many would if all were alike. No host is excluded automatically.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_NOTABLE: Final = 0.01
_NEGLIGIBLE: Final = 1e-12
"""Relative to the sum so far: terms only get smaller."""


@dataclass(frozen=True, slots=True)
class HostExposure:
    """What a store knows about a host."""

    host: str
    took_part: int
    """Different hardware-related events in which this host took part."""
    suspected: int
    expected: float
    """How often it would be the suspect if all hosts were alike."""
    gpu_expected: float
    """The same for one of its GPUs."""
    gpus: Mapping[int, int] = field(default_factory=dict[int, int])
    """GPU -> in how many events it was suspected."""


@dataclass(frozen=True, slots=True)
class Odds:
    suspected: int
    expected: float
    odds: float
    """The probability of this many or more by chance."""
    by_luck: float
    """How many of all hosts (or GPUs) would look this bad by chance."""


@dataclass(frozen=True, slots=True)
class GpuOdds:
    gpu: int
    odds: Odds


@dataclass(frozen=True, slots=True)
class NodeOdds:
    host: str
    took_part: int
    odds: Odds
    gpu: GpuOdds | None
    """Its most suspicious GPU, if evidence names GPUs."""

    @property
    def is_notable(self) -> bool:
        """Chance alone would hardly produce one such host among all."""
        return self.best.suspected > 1 and self.best.by_luck < _NOTABLE

    @property
    def best(self) -> Odds:
        """The odds of the host or of its GPU, whichever is less likely by chance."""
        return self.gpu.odds if self.gpu and self.gpu.odds.by_luck < self.odds.by_luck else self.odds

    @property
    def name(self) -> str:
        return f"{self.host} GPU {self.gpu.gpu}" if self.gpu and self.best is self.gpu.odds else self.host


def weigh(exposures: Sequence[HostExposure]) -> tuple[NodeOdds, ...]:
    """The least likely by chance first; hosts that were never suspected are left out."""
    per_host = 1 + max((gpu for one in exposures for gpu in one.gpus), default=0)
    weighed = [_weigh_host(one, len(exposures), per_host) for one in exposures if one.suspected]
    return tuple(sorted(weighed, key=lambda node: (node.best.by_luck, -node.best.suspected, node.host)))


def _weigh_host(one: HostExposure, hosts: int, gpus_per_host: int) -> NodeOdds:
    gpus = (
        GpuOdds(gpu, _odds(times, one.took_part, one.gpu_expected, hosts * gpus_per_host))
        for gpu, times in one.gpus.items()
    )
    worst = min(gpus, key=lambda gpu: (gpu.odds.odds, gpu.gpu), default=None)
    return NodeOdds(one.host, one.took_part, _odds(one.suspected, one.took_part, one.expected, hosts), worst)


def _odds(suspected: int, took_part: int, expected: float, looked_at: int) -> Odds:
    odds = binomial_tail(suspected, took_part, min(1.0, expected / took_part))
    return Odds(suspected, expected, odds, min(float(looked_at), odds * looked_at))


def binomial_tail(least: int, trials: int, chance: float) -> float:
    """The probability of `least` or more successes."""
    if least <= 0 or chance >= 1:
        return 1.0
    if chance <= 0 or least > trials:
        return 0.0
    total, ratio = 0.0, chance / (1 - chance)
    log_term = (
        math.lgamma(trials + 1)
        - math.lgamma(least + 1)
        - math.lgamma(trials - least + 1)
        + least * math.log(chance)
        + (trials - least) * math.log1p(-chance)
    )
    term = math.exp(log_term)
    for count in range(least, trials + 1):
        total += term
        if term < total * _NEGLIGIBLE and count > trials * chance:
            break
        term *= (trials - count) / (count + 1) * ratio
    return min(1.0, total)


def say_odds(odds: float) -> str:
    """`1 in 52,000`."""
    if odds >= 0.5:
        return "as expected by chance"
    return f"1 in {1 / odds:,.0f}" if odds > 1e-12 else "less than 1 in 10^12"


def to_confirm(node: NodeOdds) -> tuple[str, ...]:
    """What would distinguish a bad node from an unlucky one. It is printed, not run."""
    device = f"CUDA_VISIBLE_DEVICES={node.gpu.gpu} " if node.gpu and node.best is node.gpu.odds else ""
    return (
        f"on {node.host}: {device}forkpoint doctor   # GPUs, links, kernel log and clocks",
        "the same job once without it: an incident that recurs elsewhere is not this node's fault",
    )
