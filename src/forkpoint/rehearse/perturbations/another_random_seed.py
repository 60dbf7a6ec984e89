"""One rank draws other random numbers.

What it does
    At the chosen draw the streams that the whole process shares (`random`, torch's default generator, numpy's) are moved
    on by one draw on the chosen rank: from then on it draws what the others draw next.

Where it comes from
    A rank that draws once more than the others: a sample that was read again, an augmentation, a dropout in one more
    forward pass. Ranks that are seeded alike agree only as long as all draw equally often.

When it can happen
    Wherever the user's code draws from a shared stream. Generators of the program's own are left alone: who makes one for
    its decisions has thought of this.

A healthy program
    Draws what all ranks must agree on from a generator that is used for nothing else, or on one rank, which broadcasts it.
"""

import random
import sys
from collections.abc import Iterator
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, Inside
from forkpoint.rehearse.model import Calm, Site, Target, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of


def find(calm: Calm, _decisions: Decisions) -> Iterator[Target]:
    """All places together: a rank has one stream of each kind."""
    found = [target for _, target in targets_of(calm, UseKind.DRAW)]
    if found:
        ranks = tuple(sorted({rank for target in found for rank in target.ranks}))
        yield Target(None, ranks, "", sum(target.occurrences for target in found))


class _Draws(Disturbance):
    def drew(self, site: Site, name: str, value: Any) -> None:
        del name, value
        if self.is_here(None) and self.is_now():
            self.say("it had drawn one random number more", site)
            random.random()  # noqa: S311 no secret
            self.inside.torch.rand(1)
            numpy = sys.modules.get("numpy")
            if numpy is not None:
                numpy.random.random()


def _install(inside: Inside) -> Disturbance:
    return _Draws(inside)


PERTURBATION = Perturbation(
    "random-seed", "other random numbers", find, _install, "the program draws from no stream that the process shares"
)
