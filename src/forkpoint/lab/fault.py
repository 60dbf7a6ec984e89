"""What the lab breaks, and how: a patch on a healthy job, what is done to it from outside, and the truth about both."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from forkpoint.lab.job import HealthyJob
from forkpoint.lab.plan import Backend, Signal
from forkpoint.model.verdict import Action, Cause, Symptom

__all__ = ["HANGS", "Backend", "Edit", "Fault", "Signal", "Truth"]

HANGS = (Symptom.WATCHDOG_TIMEOUT, Symptom.ERROR, Symptom.SILENT_HANG)
"""What a hang may show, by backend and by who gives up first."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One place of the patch. `find` occurs in the job exactly once."""

    find: str
    replace: str
    guilty: bool = True
    """Whether a person who is shown this place has found the mistake. False: an import, or data that leads to it."""


@dataclass(frozen=True, slots=True)
class Truth:
    """Every answer that a careful person could give from the evidence, best first."""

    symptom: tuple[Symptom, ...]
    cause: tuple[Cause, ...]
    suspects: tuple[tuple[int, ...], ...]
    """An empty answer means that naming nobody is right."""
    action: tuple[Action, ...]
    story: str


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    title: str
    job: HealthyJob
    truth: Truth
    edits: tuple[Edit, ...] = ()
    signals: tuple[Signal, ...] = ()
    absent: tuple[int, ...] = ()
    """Ranks that are never started."""
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    ends: bool = False
    """The job runs to its end, so every rank is asked for its dump there."""
    backends: tuple[Backend, ...] = ("gloo", "nccl")
    truth_on: Mapping[Backend, Truth] = field(default_factory=lambda: MappingProxyType({}))
    """Where one backend behaves otherwise, or leaves other evidence."""

    def truth_for(self, backend: Backend) -> Truth:
        return self.truth_on.get(backend, self.truth)
