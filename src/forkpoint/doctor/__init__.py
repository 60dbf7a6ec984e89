"""The first-response checklist as a program: is this node, and this job's environment, fit to run and to leave evidence?

Checks are in `checks/`, by subject. A check reads the machine through a System and answers ok, bad or skipped; it changes
nothing.
"""

import time
from collections.abc import Iterable
from threading import Thread

from forkpoint.doctor.report import CheckFailure, CheckResult, DoctorCheck, DoctorReport, Judged
from forkpoint.doctor.system import System

LIMIT_S = 15.0
"""For all checks together: a node without persistence mode takes up to ten seconds to open its GPUs."""


def examine(system: System, checks: Iterable[DoctorCheck], limit_s: float = LIMIT_S) -> DoctorReport:
    """Runs all checks at once: most of the time is spent waiting for programs."""
    deadline = time.monotonic() + limit_s
    looks = [_Look(check, system) for check in checks]
    for look in looks:
        look.start()
    for look in looks:
        look.join(max(0.0, deadline - time.monotonic()))
    return _report(system, looks, limit_s)


class _Look(Thread):
    """A daemon thread per check, so that it does not keep the program alive: a read on a broken node may never return."""

    def __init__(self, check: DoctorCheck, system: System) -> None:
        super().__init__(name=check.name, daemon=True)
        self.check = check
        self.outcome: CheckResult | str | None = None
        self._system = system

    def run(self) -> None:
        try:
            self.outcome = self.check.look(self._system)
        except Exception as error:  # noqa: BLE001 - one broken check must not affect the others
            self.outcome = f"raised {type(error).__name__}: {error}"


def _report(system: System, looks: list[_Look], limit_s: float) -> DoctorReport:
    results: list[Judged] = []
    failures: list[CheckFailure] = []
    for look in looks:
        outcome = look.outcome
        if isinstance(outcome, CheckResult):
            results.append(Judged(look.check.name, look.check.title, outcome))
        else:
            why = outcome or f"no result after {limit_s:g} s: something it reads does not answer"
            failures.append(CheckFailure(look.check.name, why))
    return DoctorReport(system.host, system.now(), system.job, None, tuple(results), tuple(failures))
