"""What one look at a machine gave."""

from dataclasses import dataclass

from forkpoint.doctor.check import CheckResult, CheckStatus


@dataclass(frozen=True, slots=True)
class Judged:
    check: str
    title: str
    result: CheckResult


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """A check that gave no result: it raised or did not end. That says something about the doctor, or is a sign of a
    machine on which reads block for ever.
    """

    check: str
    why: str


@dataclass(frozen=True, slots=True)
class DoctorReport:
    host: str
    time: float
    """Seconds since the epoch, by this machine's clock."""
    job: int | None
    injected: str | None
    """The check whose machine was broken on purpose: nothing here is then true of the real one."""
    results: tuple[Judged, ...]
    failures: tuple[CheckFailure, ...]

    @property
    def bad(self) -> tuple[Judged, ...]:
        return tuple(judged for judged in self.results if judged.result.status is CheckStatus.BAD)

    @property
    def exit_code(self) -> int:
        """As Node Problem Detector reads it: 0 nothing bad, 1 something is, 2 not known."""
        return 1 if self.bad else 2 if self.failures else 0
