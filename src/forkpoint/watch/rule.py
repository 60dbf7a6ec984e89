"""When is what a look shows an alarm?

Ranks of a running job are asked at different moments, so a rank that is behind in one look is not a finding. An alarm
needs evidence that time cannot undo, or time itself:

- mismatched calls: members of a group issued different ops, sizes or dtypes at one seq. That cannot change any more.
- a ring of waits whose ranks do not move, with stacks that show each of them inside a communication call.
- the logs report an end (a watchdog's timeout, a kill, a crash), and no rank moves. An exception may have been caught, so
  it counts only once the logs are quiet as well, and the rank that raised it does not answer.
- the job has stalled (`live/stall.py`).

The verdict must be the same in two looks in a row: half-written files, answers from before and after a restart, and lines
that are still to come would change it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from forkpoint.detectors.stalls import is_communicating
from forkpoint.live.stall import has_stalled
from forkpoint.model.capture import Capture
from forkpoint.model.divergence import Divergence, PartingKind
from forkpoint.model.log import FAILURES, LogEvent, LogKind
from forkpoint.model.verdict import Cause, Verdict
from forkpoint.watch.progress import Movement

_ENDS = frozenset({
    LogKind.WATCHDOG_TIMEOUT,
    LogKind.WATCHDOG_DIED,
    LogKind.DESYNC,
    LogKind.KILLED,
    LogKind.CRASHED,
    LogKind.AGENT_FAILURE,
    LogKind.NODE_FAILED,
})  # fmt: skip
"""After these a process does not go on."""


class Ground(StrEnum):
    """What an alarm rests on."""

    MISMATCH = "mismatch"
    RING = "ring"
    LOGS = "logs"
    STILL = "still"


@dataclass(frozen=True, slots=True)
class Words:
    """What the logs have said since ranks last moved."""

    ends: int = 0
    failed: frozenset[int | None] = frozenset()
    """Ranks that reported a failure. None: a line that does not name its rank."""

    def heard(self, said: Iterable[LogEvent]) -> "Words":
        events = list(said)
        ends = sum(event.kind in _ENDS for event in events)
        return Words(self.ends + ends, self.failed | {event.rank for event in events if event.kind in FAILURES})

    def tell_of_loss(self, answering: Iterable[int]) -> bool:
        """A failure that was not handled: the rank that reported it does not answer any more."""
        seen = frozenset(answering)
        return bool(self.failed - seen - {None}) if seen else bool(self.failed)


def find_ground(verdict: Verdict | None, step: Movement, words: Words, stall_s: float, *, quiet: bool) -> Ground | None:
    """`verdict`: of the dumps alone. `quiet`: the logs did not grow since the look before."""
    divergence = verdict.divergence if verdict else None
    if divergence is not None and is_final(divergence):
        return Ground.MISMATCH
    if not step.moved and has_stalled(step.still_s, stall_s, waiting=step.is_pending):
        return Ground.STILL
    if not step.moved and (words.ends or (quiet and words.tell_of_loss(step.standings))):
        return Ground.LOGS
    if divergence is not None and divergence.how is PartingKind.CYCLE and not step.moved:
        return Ground.RING
    return None


def is_final(divergence: Divergence) -> bool:
    """Counts of messages change; what was issued at a seq does not."""
    if divergence.how is PartingKind.MESSAGE:
        return divergence.shift is None
    return divergence.how in (PartingKind.METADATA, PartingKind.VOLUME)


def stands(ground: Ground, verdict: Verdict, capture: Capture) -> bool:
    """Whether the verdict on all evidence is the alarm that the ground announced."""
    divergence = verdict.divergence
    match ground:
        case Ground.MISMATCH:
            return divergence is not None and is_final(divergence)
        case Ground.RING:
            inside = {s.rank for s in capture.stacks if is_communicating(s.stack)}
            return divergence is not None and bool(divergence.cycle) and inside.issuperset(divergence.cycle)
        case Ground.LOGS | Ground.STILL:
            return verdict.cause is not Cause.HEALTHY


def incident_of(verdict: Verdict) -> tuple[object, ...]:
    """Equal for verdicts on the same incident."""
    divergence = verdict.divergence
    where = (divergence.group, divergence.channel, divergence.seq, divergence.how) if divergence else ()
    return (verdict.cause, verdict.suspects, *where)
