"""A fork with how well it explains, before all are compared."""

from dataclasses import dataclass

from forkpoint.bridge.fork import Fork


@dataclass(frozen=True, slots=True)
class Weighed:
    fork: Fork
    weight: float
