"""Faults planted at random places: how many are told exactly, and whether an innocent rank is ever accused.

python -m bench.scale.accuracy --ranks 1024 --faults 100
python -m bench.scale.accuracy --ranks 1024 --faults 100 --missing 0.05 --cut 0.05
"""

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Tally:
    planted: Counter[FaultKind] = field(default_factory=Counter[FaultKind])
    exact: Counter[FaultKind] = field(default_factory=Counter[FaultKind])
    named: int = 0
    """Verdicts that accuse the planted rank and nobody else."""
    accused: int = 0
    """Verdicts that accuse an innocent rank."""

    def add(self, world: World, score: Score) -> None:
        self.planted[world.kind] += 1
        self.exact[world.kind] += score.exact
        self.named += score.who
        self.accused += bool(score.innocents)


def try_faults(ranks: int, faults: int, seed: int, damage: Damage) -> Iterator[tuple[World, Verdict, Score]]:
    for world, capture in try_capture(ranks, faults, seed, damage):
        verdict = diagnose(capture)
        yield world, verdict, Score.of(verdict, world)


def try_capture(ranks: int, faults: int, seed: int, damage: Damage) -> Iterator[tuple[World, Capture]]:
    """Kinds in turn; where in the job and in the step, how far hosts run ahead and which dumps are damaged by chance."""
    mesh = Mesh.of(ranks)
    for number in range(faults):
        chance = random.Random(f"{seed} {number}")
        world = plant(mesh, chance.choice(DRAWN[number % len(DRAWN)]), chance)
        yield world, _read(world, damage, chance).capture()


def _read(world: World, damage: Damage, chance: random.Random) -> Reading:
    dumps, reading = Dumps(world), Reading()
    for rank in dumps.ranks():
        drawn = chance.random()
        if drawn < damage.missing:
            continue
        data = dumps.dump(rank)
        if drawn < damage.missing + damage.cut:
            data = data[: chance.randrange(1, len(data))]
        try:
            reading.add_dump(f"nccl_trace_rank_{rank}", data)
        except InputError:
            continue  # cut before its first entry: as good as missing
    return reading


def tell(world: World, verdict: Verdict) -> str:
    wanted = ", ".join(f"{s.kind.name} {s.channel or s.seq}" for s in world.slots)
    return f"{world.kind} of rank {world.rank} at {wanted}: {verdict.cause} {verdict.suspects} {verdict.summary}"


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
    for world, verdict, score in try_faults(args.ranks, args.faults, args.seed, Damage(args.missing, args.cut)):
        tally.add(world, score)
        if not score.exact and not args.json:
            print(tell(world, verdict), flush=True)
    if args.json:
        print(json.dumps({"exact": tally.exact.total(), "named": tally.named, "accused": tally.accused}))
        return
    for kind, planted in sorted(tally.planted.items()):
        print(f"{kind}: {tally.exact[kind]} of {planted} exact")
    print(f"{tally.exact.total()} of {args.faults} exact, {tally.accused} accuse an innocent rank")


if __name__ == "__main__":
    main()
