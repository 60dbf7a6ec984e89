"""One rank's clock is ahead by hours, or its time passes more slowly.

What it does
    From the chosen read on, the user's code on the chosen rank sees a clock (`time.time`, `monotonic`,
    `perf_counter`, `datetime.now`) that is six hours ahead, or one that runs at a tenth of the speed. Libraries see the
    right time.

Where it comes from
    Two clocks never agree to the millisecond; one that was set wrongly, or on a suspended machine, is hours off.
    SpeechBrain 1167 (a checkpoint every few minutes by each rank's own clock, with a barrier in it).

When it can happen
    Wherever a program reads the time.

A healthy program
    Decides by steps, or lets one rank look at its clock and broadcasts the decision.
"""

from collections.abc import Iterator

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of

_AHEAD_S = 6 * 3600.0
_SLOWER = 0.1


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    """One target for all places: a rank has one clock, which is wrong everywhere from one moment on."""
    found = [target for _, target in targets_of(calm, UseKind.CLOCK)]
    if found:
        ranks = tuple(sorted({rank for target in found for rank in target.ranks}))
        often = sum(target.occurrences for target in found)
        for how in ("ahead", "slow"):
            yield TrialTarget(None, ranks, "", often, {"how": how}, label=how)


class _Clock(Disturbance):
    def __init__(self, inside: InsideRank) -> None:
        super().__init__(inside)
        self._since: dict[str, float] = {}

    def clock(self, site: CodeSite, name: str, value: float) -> float:
        if not self.is_here(None) or not self.is_due():
            return value
        if self.settings["how"] == "ahead":
            self.say("its clock was six hours ahead", site)
            return value + _AHEAD_S
        began = self._since.setdefault(name, value)
        self.say("its clock ran at a tenth of the speed", site)
        return began + (value - began) * _SLOWER


def _install(inside: InsideRank) -> Disturbance:
    return _Clock(inside)


PERTURBATION = Perturbation("clock", "a clock that is ahead or slow", find, _install, "the program reads no clock")
