"""Faults planted at random places: how many are told exactly, and whether an innocent rank is ever accused.

python -m bench.scale.accuracy --ranks 1024 --faults 100
python -m bench.scale.accuracy --ranks 1024 --faults 100 --missing 0.05 --cut 0.05
"""

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from bench.scale.dumps import Dumps
from bench.scale.faults import DRAWN, FaultKind, World, plant
from bench.scale.mesh import Mesh
from bench.scale.score import Score
from forkpoint.errors import InputError
from forkpoint.evidence.reading import Reading
from forkpoint.model.capture import Capture
from forkpoint.model.verdict import Verdict
from forkpoint.pipeline import diagnose


@dataclass(frozen=True, slots=True)
class Damage:
    """Shares of dumps."""

    missing: float = 0.0
    cut: float = 0.0


class DumpFate(StrEnum):
    WHOLE = "whole"
    CUT = "cut"
    MISSING = "missing"
    """A lost rank never writes one."""


@dataclass(frozen=True, slots=True)
class Trial:
    world: World
    own_dump: DumpFate
    """What became of the dump of the rank at fault."""
    verdict: Verdict
    score: Score


@dataclass(slots=True)
class Tally:
    planted: Counter[FaultKind] = field(default_factory=Counter[FaultKind])
    exact: Counter[FaultKind] = field(default_factory=Counter[FaultKind])
    named: int = 0
    """Verdicts that accuse the planted rank and nobody else."""
    accused: int = 0
    """Verdicts that accuse an innocent rank."""
    by_own_dump: dict[DumpFate, Counter[str]] = field(default_factory=lambda: defaultdict(Counter[str]))
    """Of faults whose rank left such a dump: all, exact, and those in which the rank is in the first two hypotheses."""

    def add(self, trial: Trial) -> None:
        score, kind = trial.score, trial.world.kind
        self.planted[kind] += 1
        self.exact[kind] += score.exact
        self.named += score.who
        self.accused += bool(score.innocents)
        self.by_own_dump[trial.own_dump].update(all=1, exact=score.exact, among=score.exact or is_rank_among(trial))


def is_rank_among(trial: Trial) -> bool:
    """The planted rank is one of those that the first two hypotheses mean."""
    meant = [ranks for h in trial.verdict.hypotheses[:2] for ranks in (h.suspects, h.alternatives, *(h.sides or ()))]
    return any(trial.world.rank in ranks for ranks in meant)


def try_faults(ranks: int, faults: int, seed: int, damage: Damage) -> Iterator[Trial]:
    for world, capture, own_dump in try_capture(ranks, faults, seed, damage):
        verdict = diagnose(capture)
        yield Trial(world, own_dump, verdict, Score.of(verdict, world))


def try_capture(ranks: int, faults: int, seed: int, damage: Damage) -> Iterator[tuple[World, Capture, DumpFate]]:
    """Kinds in turn; where in the job and in the step, how far hosts run ahead and which dumps are damaged by chance."""
    mesh = Mesh.of(ranks)
    for number in range(faults):
        chance = random.Random(f"{seed} {number}")
        world = plant(mesh, chance.choice(DRAWN[number % len(DRAWN)]), chance)
        reading, own_dump = _read(world, damage, chance)
        yield world, reading.capture(), own_dump


def _read(world: World, damage: Damage, chance: random.Random) -> tuple[Reading, DumpFate]:
    """And what became of the dump of the rank at fault."""
    dumps, reading, fates = Dumps(world), Reading(), dict[int, DumpFate]()
    for rank in dumps.ranks():
        drawn = chance.random()
        if drawn < damage.missing:
            continue
        data = dumps.dump(rank)
        fates[rank] = DumpFate.WHOLE
        if drawn < damage.missing + damage.cut:
            data = data[: chance.randrange(1, len(data))]
            fates[rank] = DumpFate.CUT
        with suppress(InputError):  # cut before its first entry
            reading.add_dump(f"nccl_trace_rank_{rank}", data)
    return reading, fates.get(world.rank, DumpFate.MISSING)


def tell(trial: Trial) -> str:
    world, verdict = trial.world, trial.verdict
    wanted = ", ".join(f"{s.kind.name} {s.channel or s.seq}" for s in world.slots)
    own = "" if trial.own_dump is DumpFate.WHOLE else f" ({trial.own_dump} dump)"
    return f"{world.kind} of rank {world.rank}{own} at {wanted}: {verdict.cause} {verdict.suspects} {verdict.summary}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--missing", type=float, default=0.0)
    parser.add_argument("--cut", type=float, default=0.0)
    parser.add_argument("--json", action="store_true", help="only the counts, for the page")
    args = parser.parse_args()
    tally = Tally()
    for trial in try_faults(args.ranks, args.faults, args.seed, Damage(args.missing, args.cut)):
        tally.add(trial)
        if not trial.score.exact and not args.json:
            print(tell(trial), flush=True)
    if args.json:
        print(json.dumps({"exact": tally.exact.total(), "named": tally.named, "accused": tally.accused}))
        return
    for kind, planted in sorted(tally.planted.items()):
        print(f"{kind}: {tally.exact[kind]} of {planted} exact")
    for fate, found in sorted(tally.by_own_dump.items()):
        print(
            f"own dump {fate}: {found['exact']} of {found['all']} exact, "
            f"the rank decided or in the first two hypotheses in {found['among']}"
        )
    print(f"{tally.exact.total()} of {args.faults} exact, {tally.accused} accuse an innocent rank")


if __name__ == "__main__":
    main()
