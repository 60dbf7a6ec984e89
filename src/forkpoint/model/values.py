"""Values that training code recorded: what ranks had before reduction, and whether replicas were equal.

Written by `forkpoint.replicas` inside training processes, read by `ingest/value_records.py`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

FORENSICS_SCHEMA: Final = "forkpoint.forensics/1"


@dataclass(frozen=True, slots=True)
class StepValues:
    """One step of one rank, before its gradients met those of other ranks."""

    line: int
    step: int
    loss: float | None
    """None: not told, or broken."""
    broken_loss: bool
    """It is NaN or infinite."""
    norms: tuple[float | None, ...]
    """Of the gradients, by layer group. None: NaN or infinite."""
    largest: tuple[float | None, ...]
    """The largest absolute element, by layer group. None: as above."""
    nonfinite: tuple[int, ...]
    """Elements that are NaN or infinite, by layer group."""
    first_nonfinite: str | None
    """The tensor in which backward met one first: nearest to the loss."""
    data: tuple[int, ...]
    """Indices of the batch, as far as kept."""
    data_is_whole: bool
    """None of its indices was left out."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Why a rank wrote its records down."""

    line: int
    step: int
    says: str
    tensor: str | None


@dataclass(frozen=True, slots=True)
class ForensicsLog:
    """What one rank kept of its last steps."""

    file: str
    rank: int
    world: int | None
    groups: tuple[str, ...]
    """Layer groups, in the order of `StepValues.norms`."""
    steps: tuple[StepValues, ...]
    """In order, each step once."""
    triggers: tuple[Trigger, ...]
    cut: bool
    """Some of its lines could not be read: more may have been lost."""


class DesyncKind(StrEnum):
    """What a check of replicas takes the difference for."""

    SOFTWARE = "software"
    HARDWARE = "suspected-hardware"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Replicas of one tensor that were not equal, as one rank wrote it down."""

    file: str
    line: int
    rank: int
    """Who wrote it."""
    step: int
    what: str
    """`parameter body.0.weight`, `update`."""
    ranks: tuple[int, ...]
    """The replicas: global ranks."""
    checksums: tuple[str, ...]
    """In the order of `ranks`."""
    kind: DesyncKind
    why: str

    @property
    def told(self) -> tuple[object, ...]:
        """What every rank that took part writes alike."""
        return self.step, self.what, self.ranks, self.checksums


@dataclass(frozen=True, slots=True)
class Recheck:
    """Work that was done again on a suspect and on a peer, as one of them wrote it down."""

    file: str
    line: int
    rank: int
    """Who wrote it."""
    result: str
    """`persistent`: a device repeats a result that the other does not have."""
    deviates: int | None
    """Whose device that is, where one of the two can be told from the other."""
    why: str


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """What one rank wrote of its checks."""

    file: str
    rank: int
    world: int | None
    equal: tuple[tuple[int, int], ...]
    """(step, line) of checks in which all was equal, in order of steps."""
    mismatches: tuple[Mismatch, ...]
    rechecks: tuple[Recheck, ...]
    cut: bool
    """As above."""


@dataclass(frozen=True, slots=True)
class Values:
    forensics: tuple[ForensicsLog, ...] = ()
    replicas: tuple[ReplicaLog, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.forensics or self.replicas)

    @property
    def ranks(self) -> frozenset[int]:
        """Those that wrote."""
        return frozenset(log.rank for log in (*self.forensics, *self.replicas))

    @property
    def world(self) -> int | None:
        """How many ranks the job had, if all files say the same."""
        stated = {log.world for log in (*self.forensics, *self.replicas)}
        return stated.pop() if len(stated) == 1 else None


NO_VALUES: Final = Values()
