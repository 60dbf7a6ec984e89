"""Losses, gradient norms and checksums that training code recorded, and the rule for outliers."""

import math
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import numpy as np
from msgspec import Struct

# ---------------------------------------------------------------------------------------------------------------------
# Values that training code recorded: per rank before reduction, and whether replicas were equal.
#
# Written by `forkpoint.replicas` inside training processes, read by `evidence/values.py`.

FORENSICS_SCHEMA: Final = "forkpoint.forensics/1"


class StepValues(Struct, frozen=True):
    """One step of one rank, before its gradients were reduced."""

    line: int
    step: int
    loss: float | None
    """None: not recorded, or not finite."""
    broken_loss: bool
    """The loss is NaN or infinite."""
    norms: tuple[float | None, ...]
    """Gradient norms by layer group. None: NaN or infinite."""
    largest: tuple[float | None, ...]
    """The largest absolute element, by layer group. None: NaN or infinite."""
    nonfinite: tuple[int, ...]
    """How many elements are NaN or infinite, by layer group."""
    first_nonfinite: str | None
    """The tensor in which backward produced the first one: the nearest to the loss."""
    data: tuple[int, ...]
    """Sample indices of the batch, as far as they were kept."""
    data_is_whole: bool
    """All of its indices were kept."""


class Trigger(Struct, frozen=True):
    """Why a rank wrote its records to disk."""

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
    """Some lines could not be read; more may be missing."""


class DesyncKind(StrEnum):
    """How a check of replicas classifies a difference."""

    SOFTWARE = "software"
    """Ranks did different things: a different step or set of tensors, a skipped update, a stale tensor."""
    SUSPECTED_HARDWARE = "suspected-hardware"
    """Ranks did the same, and a few words came out differently."""
    UNDECIDED = "undecided"


class ReportedMismatch(Struct, frozen=True):
    """Replicas of one tensor that differed, as one rank recorded it."""

    file: str
    line: int
    rank: int
    """The rank that recorded it."""
    step: int
    what: str
    """`parameter body.0.weight`, `update`."""
    ranks: tuple[int, ...]
    """The ranks that hold a replica."""
    checksums: tuple[str, ...]
    """In the order of `ranks`."""
    kind: DesyncKind
    why: str

    @property
    def told(self) -> tuple[object, ...]:
        """The part that is the same in the reports of all participating ranks."""
        return self.step, self.what, self.ranks, self.checksums


class ReportedRecheck(Struct, frozen=True):
    """A computation that a suspect and a peer repeated, as one of them recorded it."""

    file: str
    line: int
    rank: int
    """The rank that recorded it."""
    result: str
    """`persistent`: one device gets a result again and again that the other does not get."""
    deviates: int | None
    """The rank with that device, if the recheck shows which of the two it is."""
    why: str


class ReplicaLog(Struct, frozen=True):
    """What one rank recorded about its replica checks."""

    file: str
    rank: int
    world: int | None
    equal: tuple[tuple[int, int], ...]
    """(step, line) of the checks in which everything was equal, sorted by step."""
    mismatches: tuple[ReportedMismatch, ...]
    rechecks: tuple[ReportedRecheck, ...]
    cut: bool
    """Some lines could not be read; more may be missing."""


class Values(Struct, frozen=True):
    forensics: tuple[ForensicsLog, ...] = ()
    replicas: tuple[ReplicaLog, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.forensics or self.replicas)

    @property
    def ranks(self) -> frozenset[int]:
        """Ranks that recorded something."""
        return frozenset(log.rank for log in (*self.forensics, *self.replicas))

    @property
    def world(self) -> int | None:
        """How many ranks the job had, if all files say the same."""
        stated = {log.world for log in (*self.forensics, *self.replicas)}
        return stated.pop() if len(stated) == 1 else None


NO_VALUES: Final = Values()


# ---------------------------------------------------------------------------------------------------------------------
# When a value is an outlier compared with those before it. Used both where values are recorded and where they are read.
#
# The rule: more than `K` scaled median absolute deviations above the median. It is applied to logarithms, since norms and
# losses vary by factors; only losses that are not all positive are taken as they are. A few wild values do not move the
# median and the median deviation; they do move a mean and a variance, so that one spike hides the next. The deviation (of
# logarithms) is taken to be at least 0.25 for norms and 0.1 for losses, so that nothing below 7.4 times the median norm
# or 2.2 times the median loss is an outlier.
#
# `K` is 8 because many values are examined: 100 ranks with 50 layers for 200 steps are a million. Of 720,000 log-normal
# norms none was an outlier for sigma 0.2 to 0.5, and two were for 0.7; with tails as heavy as those of Student's t with 5
# degrees of freedom it was 1 in 4,000 (with `K` = 6: 1 in 1,000). So a spike is a reason to look, never a proof.

K: Final = 8.0
FEWEST: Final = 20
"""With fewer values there is no telling what is usual."""
NORM_FLOOR: Final = 0.25
LOSS_FLOOR: Final = 0.1
TO_SIGMA: Final = 1.4826
"""Median absolute deviation times this = standard deviation of a normal distribution."""


class Spread(Struct, frozen=True):
    middle: float
    limit: float
    """Values above it are outliers."""


def spread_of_norms(norms: Iterable[float]) -> Spread | None:
    """None: too few values. Zeros mean that there was no gradient, and do not count."""
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
    return Spread(math.exp(middle), _exp(middle + above))


def _exp(log: float) -> float:
    try:
        return math.exp(log)
    except OverflowError:
        return math.inf
