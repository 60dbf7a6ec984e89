"""One rank draws different random numbers.

What it does
    At the chosen draw, the random streams that the whole process shares (`random`, torch's default generator, numpy's) are
    advanced by one draw on the chosen rank: from then on it is one draw ahead of the others.

Where it comes from
    A rank draws once more than the others: a sample is read again, an augmentation, a dropout in one more
    forward pass. Ranks with the same seed agree only as long as all draw equally often.

When it can happen
    Wherever the user's code draws from a shared stream. The program's own generators are left alone: a program that creates
    one for its decisions has thought of this.

A healthy program
    Draws what all ranks must agree on from a generator that is used for nothing else, or on one rank, which broadcasts it.
"""

import random
import sys
from collections.abc import Iterator
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    """One target for all places: a rank has one stream of each kind."""
    found = [target for _, target in targets_of(calm, UseKind.DRAW)]
    if found:
        ranks = tuple(sorted({rank for target in found for rank in target.ranks}))
        yield TrialTarget(None, ranks, "", sum(target.occurrences for target in found))


class _Draws(Disturbance):
    def drew(self, site: CodeSite, name: str, value: Any) -> None:
        del name, value
        if self.is_here(None) and self.is_now():
            self.say("it had drawn one more random number", site)
            random.random()  # noqa: S311 no secret
            self.inside.torch.rand(1)
            numpy = sys.modules.get("numpy")
            if numpy is not None:
                numpy.random.random()


def _install(inside: InsideRank) -> Disturbance:
    return _Draws(inside)


PERTURBATION = Perturbation(
    "random-seed", "different random numbers", find, _install, "the program draws from no shared random stream"
)
