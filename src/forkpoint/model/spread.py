"""When a value is out of line with those before it. Used where values are recorded and where records are read.

The rule: more than `K` scaled median deviations above the median, by logarithms, since norms and losses vary by
factors; a loss that is not always positive is taken as it is. Median and median deviation do not move for a few wild
values; a mean and a variance do, and one spike then hides the next. A deviation counts as at least a quarter of a norm
and a tenth of a loss, so that nothing below 7.4 times the median norm or 2.2 times the median loss is out of line.

`K` is 8 because many values are looked at: 100 ranks with 50 layers for 200 steps are a million. Of 720,000 log-normal
norms none was out of line for sigma 0.2 to 0.5, and two for 0.7; with tails as long as those of Student's t with 5
degrees of freedom 1 in 4,000 was (at `K` = 6: 1 in 1,000). So a spike is a reason to look, never a proof.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

K: Final = 8.0
FEWEST: Final = 20
"""Fewer values say nothing of what is usual."""
NORM_FLOOR: Final = 0.25
LOSS_FLOOR: Final = 0.1
TO_SIGMA: Final = 1.4826
"""A median deviation times this is the standard deviation of a normal spread."""


@dataclass(frozen=True, slots=True)
class Spread:
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
