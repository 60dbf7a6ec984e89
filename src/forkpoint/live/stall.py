"""When does a job hang? One rule for guard, watch, run and controller.

A job has stalled when some rank waits in an operation that is not done and no rank has moved for a time limit, which is

- what the user chose (`FORKPOINT_STALL_S`, `watch --stall`, `run --hang-after`), else
- half of the timeout of the operation that waits, so that a person or a program has the other half to act, else
- `DEFAULT_STALL_S`, half of NCCL's default timeout.

One rank that moves is progress, and ranks that compute, load or save wait for nobody: neither is a hang, however long it
takes. What shows that a rank moves depends on who looks: the recorder's counters (guard, controller), the ops in dumps
(watch), or, once the guard has raised an alarm, the logs (run).
"""

from typing import Final, Generic, TypeVar

DEFAULT_STALL_S: Final = 300.0
"""Half of NCCL's default timeout of 600 s."""

T = TypeVar("T")


def stall_limit(chosen_s: float | None, timeout_s: float = 0.0) -> float:
    """`timeout_s`: of the operation that waits; 0 if unknown."""
    return chosen_s or timeout_s / 2 or DEFAULT_STALL_S


def has_stalled(still_s: float, limit_s: float, *, waiting: bool) -> bool:
    """`still_s`: for how long no rank has moved. `waiting`: some rank is in an operation that is not done."""
    return waiting and still_s >= limit_s


class Stillness(Generic[T]):
    """For how long has a value stayed the same?"""

    def __init__(self, value: T, now: float) -> None:
        self.value = value
        self._since = now

    def see(self, value: T, now: float) -> float:
        """Seconds since it last changed; 0.0 if it changed now."""
        if value != self.value:
            self.value, self._since = value, now
        return self.seconds(now)

    def seconds(self, now: float) -> float:
        return now - self._since
