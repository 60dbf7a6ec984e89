"""Probes, one per file: each turns a hang into a clear failure at a chosen place."""

from collections.abc import Callable, Sequence

from forkpoint.model.verdict import Probe
from forkpoint.remedies.probes import (
    collective_reached,
    exception_caught,
    rank_held,
    same_argument,
    same_decision,
    same_order,
    same_rounds,
)
from forkpoint.remedies.scene import Scene
from forkpoint.source.bridge.fork import Fork

PROBES: tuple[Callable[[Fork, Scene], Probe | None], ...] = (
    same_decision.offer,
    same_rounds.offer,
    same_order.offer,
    same_argument.offer,
    exception_caught.offer,
    rank_held.offer,
)
"""For a fork, the first that fits."""
SECOND = collective_reached.offer
"""Checks the collective, not the decision, so it also works if the fork is not the cause."""
_MOST = 3


def offer_probes(forks: Sequence[Fork], scene: Scene) -> tuple[Probe, ...]:
    """One for each fork that explains the divergence equally well; the second kind only for the first fork."""
    equal = [fork for fork in forks if fork.confidence == forks[0].confidence]
    found = [next((p for offer in PROBES if (p := offer(fork, scene))), None) for fork in equal]
    second = [SECOND(fork, scene) for fork in equal[:1]]
    by_patch = {probe.patch: probe for probe in (*found[: _MOST - 1], *second, *found[_MOST - 1 :]) if probe}
    return tuple(by_patch.values())[:_MOST]
