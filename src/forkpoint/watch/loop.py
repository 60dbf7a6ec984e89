"""Look after look."""

import time
from collections.abc import Iterator

from forkpoint.watch.look import Watch
from forkpoint.watch.sight import Sight

EVERY_S = 5.0
"""A full answer costs a rank about 30 ms of one core: at this pace less than a hundredth of it."""
_SHARE = 10
"""Reading 10,000 dumps takes minutes of a core: this process gets no more than a tenth of it."""

_FEW = 3
"""The first has nothing to compare with; then logs that say of an exception must be still, and the verdict the same."""


def looks(watch: Watch, every_s: float) -> Iterator[Sight]:
    """Without end."""
    while True:
        begun = time.process_time()
        yield watch.look()
        time.sleep(max(every_s, _SHARE * (time.process_time() - begun)))


def look_once(watch: Watch, every_s: float) -> Sight:
    """A few looks: one shows no movement, and a verdict must be the same in two."""
    sight = watch.look()
    for _ in range(_FEW - 1):
        if sight.is_alarm:
            break
        time.sleep(every_s)
        sight = watch.look()
    return sight
