"""What a check of the doctor is, and what it answers."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from forkpoint.doctor.system import System


class CheckStatus(StrEnum):
    OK = "ok"
    BAD = "bad"
    SKIPPED = "skipped"
    """Could not be looked at, or there is nothing to look at. Never the same as ok."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    status: CheckStatus
    says: str
    """One sentence: what was seen; of a skipped check, why it could not be looked at."""
    fix: str | None = None
    """What to do, or the command that looks closer. The doctor itself changes nothing."""
    details: tuple[tuple[str, str], ...] = ()
    """What should be equal on all nodes of a job, and what an earlier doctor's counters are compared with."""


def ok(says: str, *details: tuple[str, str]) -> CheckResult:
    return CheckResult(CheckStatus.OK, says, details=details)


def bad(says: str, fix: str, *details: tuple[str, str]) -> CheckResult:
    return CheckResult(CheckStatus.BAD, says, fix, details)


def skipped(why: str, fix: str | None = None) -> CheckResult:
    return CheckResult(CheckStatus.SKIPPED, why, fix)


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    """As a person types it: `gpu-ecc`."""
    title: str
    """What is checked, in a few words."""
    why: str
    """What goes wrong in a job when it is bad, and where that is known from."""
    look: Callable[[System], CheckResult]
    inject: Callable[[System], System]
    """The same machine with one thing broken, so that this check is bad: how `--inject` shows that it can fail."""
