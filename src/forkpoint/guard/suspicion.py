"""Summary -> is there a reason to look closer? Time alone is a reason only after the stall threshold: a healthy job may be
slow, uneven, checkpointing or evaluating.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forkpoint.guard.summary import Conflict, Summary
from forkpoint.live.stall import has_stalled, stall_limit

QUIET_S: Final = 1.0
"""After this long without movement nobody runs: a rank that does would have been seen at two looks."""

_STRENGTH: Final = ("seq", "block", "step")
"""What says most exactly where ranks parted comes first."""


class SuspicionReason(StrEnum):
    MISMATCH = "mismatch"
    """Ranks reported different calls at one place."""
    STEP = "step"
    """Ranks had issued different numbers of calls at the end of the same step."""
    DEPARTED = "departed"
    """Others wait, and a rank ended, failed or does not run."""
    CYCLE = "cycle"
    """Everybody waits, and not at one place."""
    STALL = "stall"
    """Somebody waits, and nothing has moved for longer than the threshold."""


@dataclass(frozen=True, slots=True)
class Suspicion:
    reason: SuspicionReason
    conflict: Conflict | None = None
    still_s: float = 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for the same suspicion at the next look."""
        conflict = self.conflict
        return (self.reason, (conflict.group, conflict.what, conflict.at) if conflict else None)


def suspect(summary: Summary, world_size: int, stall_s: float | None) -> Suspicion | None:
    """The strongest reason, if there is any."""
    if summary.conflicts:
        first = min(summary.conflicts, key=lambda c: (_STRENGTH.index(c.what), c.at))
        return Suspicion(
            SuspicionReason.STEP if first.what == "step" else SuspicionReason.MISMATCH, first, summary.still_s
        )
    if not summary.waiting or summary.still_s < QUIET_S:
        return None
    if summary.odd:
        return Suspicion(SuspicionReason.DEPARTED, still_s=summary.still_s)
    if summary.waiting == world_size and len(summary.waits) > 1:
        return Suspicion(SuspicionReason.CYCLE, still_s=summary.still_s)
    if has_stalled(summary.still_s, stall_limit(stall_s, summary.timeout_s), waiting=bool(summary.waiting)):
        return Suspicion(SuspicionReason.STALL, still_s=summary.still_s)
    return None
