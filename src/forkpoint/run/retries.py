"""Whether a job is tried again, and when: pure functions of how its attempts ended."""

from collections.abc import Sequence
from dataclasses import dataclass

from forkpoint.live.diagnosing import DO_NOT_RETRY, RETRY_ELSEWHERE, Decision, Diagnosed
from forkpoint.run.outcome import Attempt

MAX_WAIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Retry:
    wait_s: float


def next_step(attempts: Sequence[Attempt], retries: int, back_off_s: float, chance: float) -> Retry | Decision:
    """After the last attempt failed. `chance`, 0 to 1, keeps a thousand jobs that failed at once from coming back at once."""
    last = attempts[-1]
    decision = last.decision
    if retries == 0 or last.told_to_stop or decision.code == DO_NOT_RETRY:
        return decision
    if decision.code == RETRY_ELSEWHERE:
        return Decision(decision.code, f"{decision.why}; nodes are the scheduler's to choose", decision.nodes)
    if len(attempts) > 1 and repeats(attempts[-2], last):
        return Decision(DO_NOT_RETRY, f"the same failure again, without progress: {decision.why}", decision.nodes)
    if len(attempts) > retries:
        return Decision(decision.code, f"{decision.why}; all {retries} retries are used", decision.nodes)
    return Retry(min(MAX_WAIT_S, back_off_s * 2 ** (len(attempts) - 1)) * (0.5 + chance / 2))


def repeats(before: Attempt, now: Attempt) -> bool:
    """The same cause with the same suspects, and no progress. Inconclusive failures never count as the same."""
    one, other = before.found, now.found
    if one is None or other is None or other.cause == "inconclusive":
        return False
    return (one.cause, one.suspects) == (other.cause, other.suspects) and not _came_further(one, other)


def _came_further(one: Diagnosed, other: Diagnosed) -> bool:
    """Steps go on where a checkpoint was loaded; seqs begin anew, so they count only where no log tells steps."""
    if one.step is not None and other.step is not None:
        return other.step > one.step
    return one.seq is not None and other.seq is not None and other.seq > one.seq
