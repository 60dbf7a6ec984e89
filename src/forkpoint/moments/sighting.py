"""What one rank or machine tells of a moment, before those that tell the same are put together."""

from dataclasses import dataclass

from forkpoint.clocks import Instant
from forkpoint.model.verdict import NOT_DATED, Evidence, Source


@dataclass(frozen=True, slots=True)
class Sighting:
    instant: Instant | None
    """None: nothing dates it."""
    when: str | None
    """As the source prints it; None for dumps, whose times are numbers."""
    source: Source
    kind: str
    about: str
    """Two sightings of one kind on one clock are one moment if this is equal."""
    host: str | None
    says: str
    evidence: Evidence
    """Its rank is who tells."""
    line: int
    """Orders what one file tells."""
    bound: bool = False
    """It came no later than `instant`."""
    step: int = 0
    """What comes first where neither seconds nor a file tell."""

    @property
    def clock(self) -> str:
        return self.instant.clock if self.instant else NOT_DATED

    @property
    def second(self) -> int:
        return self.instant.second if self.instant else 0

    @property
    def order(self) -> tuple[int, int, str, int, str]:
        """The same whatever the order in which files were read."""
        return self.second, self.step, self.evidence.file, self.line, self.about
