"""One rank hashes strings differently.

What it does
    The chosen rank has a different `PYTHONHASHSEED`, so its sets of strings have another order. In all
    other runs of a rehearsal the ranks share one.

Where it comes from
    Python itself: unless it is set, every process has its own. apex 18 (a collective per key of an unordered
    dict), nvalchemi 143 (a set of names, one collective for each), verl 6405.

When it can happen
    Always, unless the job sets PYTHONHASHSEED for all ranks.

A healthy program
    Sorts before it loops, if it makes a collective for each element.
"""

from collections.abc import Iterator

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import HASH_SEED, Calm, TrialTarget
from forkpoint.rehearse.perturbation import Perturbation

_SEED = "4242"


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    ranks = tuple(told.rank for told in calm.ranks)
    yield TrialTarget(None, ranks, settings={HASH_SEED: _SEED}, label=_SEED)


class _Hash(Disturbance):
    def begin(self) -> None:
        if self.is_here(None):
            self.say("its strings have different hashes", None)


def _install(inside: InsideRank) -> Disturbance:
    return _Hash(inside)


PERTURBATION = Perturbation("hash-seed", "another hash seed", find, _install, "")
