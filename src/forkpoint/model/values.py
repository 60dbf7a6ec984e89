"""Values that training code recorded, and when one is out of line with those before it."""

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import numpy as np
from msgspec import Struct

# ---------------------------------------------------------------------------------------------------------------------
# Values that training code recorded: what ranks had before reduction, and whether replicas were equal.
#
# Written by `forkpoint.replicas` inside training processes, read by `evidence/values.py`.

FORENSICS_SCHEMA: Final = "forkpoint.forensics/1"


class StepValues(Struct, frozen=True):
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


class Trigger(Struct, frozen=True):
    """Why a rank wrote its records down."""

    line: int
    step: int
    says: str
    tensor: str | None


class ForensicsLog(Struct, frozen=True):
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


class ReportedMismatch(Struct, frozen=True):
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


class ReportedRecheck(Struct, frozen=True):
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


class ReplicaLog(Struct, frozen=True):
    """What one rank wrote of its checks."""

    file: str
    rank: int
    world: int | None
    equal: tuple[tuple[int, int], ...]
    """(step, line) of checks in which all was equal, in order of steps."""
    mismatches: tuple[ReportedMismatch, ...]
    rechecks: tuple[ReportedRecheck, ...]
    cut: bool
    """As above."""


class Values(Struct, frozen=True):
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


# ---------------------------------------------------------------------------------------------------------------------
# When a value is out of line with those before it. Used where values are recorded and where records are read.
#
# The rule: more than `K` scaled median deviations above the median, by logarithms, since norms and losses vary by
# factors; a loss that is not always positive is taken as it is. Median and median deviation do not move for a few wild
# values; a mean and a variance do, and one spike then hides the next. A deviation counts as at least a quarter of a
# norm and a tenth of a loss, so that nothing below 7.4 times the median norm or 2.2 times the median loss is out of
# line.
#
# `K` is 8 because many values are looked at: 100 ranks with 50 layers for 200 steps are a million. Of 720,000
# log-normal norms none was out of line for sigma 0.2 to 0.5, and two for 0.7; with tails as long as those of Student's
# t with 5 degrees of freedom 1 in 4,000 was (at `K` = 6: 1 in 1,000). So a spike is a reason to look, never a proof.

K: Final = 8.0
FEWEST: Final = 20
"""Fewer values say nothing of what is usual."""
NORM_FLOOR: Final = 0.25
LOSS_FLOOR: Final = 0.1
TO_SIGMA: Final = 1.4826
"""A median deviation times this is the standard deviation of a normal spread."""


class Spread(Struct, frozen=True):
    middle: float
    limit: float
    """Above it a value is out of line."""


def spread_of_norms(norms: Iterable[float]) -> Spread | None:
    """None: too few. Zeros are gradients that were not there, and do not count."""
    known = [norm for norm in norms if 0 < norm < math.inf]
    return _by_logarithms(known, NORM_FLOOR) if len(known) >= FEWEST else None


def spread_of_losses(losses: Iterable[float]) -> Spread | None:
    known = [loss for loss in losses if math.isfinite(loss)]
    if len(known) < FEWEST:
        return None
    if min(known) > 0:
        return _by_logarithms(known, LOSS_FLOOR)
    middle = float(np.median(known))
    above = K * max(TO_SIGMA * float(np.median([abs(loss - middle) for loss in known])), LOSS_FLOOR * abs(middle))
    return Spread(middle, middle + above)


def _by_logarithms(values: Iterable[float], floor: float) -> Spread:
    logs = [math.log(value) for value in values]
    middle = float(np.median(logs))
    above = K * max(TO_SIGMA * float(np.median([abs(log - middle) for log in logs])), floor)
    return Spread(math.exp(middle), _grown(middle + above))


def _grown(log: float) -> float:
    try:
        return math.exp(log)
    except OverflowError:
        return math.inf
