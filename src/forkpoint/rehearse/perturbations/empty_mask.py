"""A mask selects nothing on one rank.

What it does
    At the chosen occasion, a mask that selects elements of a tensor (`x[mask]`, `masked_select`, `nonzero`) is all false on the
    chosen rank.

Where it comes from
    A batch in which nothing counts: all completions were cut, no box, no unmasked token, no sample of a class. TRL 4041 (a
    return where this rank has no token), detectron2 7c69c051, NeMo Automodel 2468 (no valid anchor).

When it can happen
    Where the number of selected elements differed between ranks, or from time to time, in the calm run: nothing fixes it.

A healthy program
    Makes the same calls with nothing as with something, or asks all ranks before it leaves any out.
"""

from collections.abc import Iterator
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for by_rank in calm.uses(UseKind.MASK).values():
        uses = list(by_rank.values())
        if len({count for use in uses for count in use.values}) > 1:
            yield TrialTarget(uses[0].site, tuple(sorted(by_rank)), "", min(use.count for use in uses))


class _Empty(Disturbance):
    def selecting(self, site: CodeSite, mask: Any) -> Any:
        if not self.is_here(site) or not self.is_now():
            return mask
        self.say("its mask selected nothing", site)
        return self.inside.torch.zeros_like(mask)


def _install(inside: InsideRank) -> Disturbance:
    return _Empty(inside)


PERTURBATION = Perturbation(
    "empty-mask",
    "a mask that selects nothing",
    find,
    _install,
    "no mask selects a number of elements that can differ by rank",
)
