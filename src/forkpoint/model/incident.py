"""What detectors look at."""

from dataclasses import dataclass

from forkpoint.model.capture import Capture
from forkpoint.model.divergence import Divergence
from forkpoint.model.timeline import Timeline


@dataclass(frozen=True, slots=True)
class Incident:
    capture: Capture
    timeline: Timeline
    divergences: tuple[Divergence, ...]
    """The first is the fork point; later ones are what else parts."""

    @property
    def divergence(self) -> Divergence | None:
        return self.divergences[0] if self.divergences else None
