"""Large jobs with a planted fault as cases for `forkpoint eval --agent`: what no agent can read file by file.

python -m bench.scale.planted /tmp/planted --ranks 1024 --faults 10
forkpoint eval /tmp/planted --every --agent COMMAND --out results

Ring buffers of three sizes, one dump in fifty missing, logs of 64 ranks that say nothing but steps.
"""

import argparse
import random
from pathlib import Path

from bench.scale.dumps import ENTRIES, Dumps
from bench.scale.faults import DRAWN, STEPS_BEFORE, World, plant
from bench.scale.mesh import Mesh

_RINGS = (ENTRIES, ENTRIES // 2, ENTRIES // 4)
_NODE = 8
_LINES = 200


def write_cases(folder: Path, ranks: int, faults: int, seed: int, missing: float, logs: int) -> None:
    mesh = Mesh.of(ranks)
    for number in range(faults):
        chance = random.Random(f"{seed} {number}")
        world = plant(mesh, chance.choice(DRAWN[number % len(DRAWN)]), chance)
        case = folder / f"{number + 1:04}"
        (case / "capture").mkdir(parents=True)
        _write_dumps(case / "capture", world, chance, missing)
        _write_logs(case / "capture", chance, ranks, logs)
        (case / "case.toml").write_text(_truth(world), "utf-8")
        print(f"{case}: {world.kind} of rank {world.rank}", flush=True)


def _write_dumps(folder: Path, world: World, chance: random.Random, missing: float) -> None:
    """The dump of the rank at fault is there, unless it is lost: what nothing shows nobody can find."""
    of_size = [Dumps(world, size) for size in _RINGS]
    for rank in of_size[0].ranks():
        if chance.random() >= missing or rank == world.rank:
            dumps = of_size[(rank // _NODE) % len(_RINGS)]
            (folder / f"nccl_trace_rank_{rank}").write_bytes(dumps.dump(rank))


def _write_logs(folder: Path, chance: random.Random, ranks: int, logs: int) -> None:
    for rank in sorted(chance.sample(range(ranks), min(logs, ranks))):
        steps = range(max(0, STEPS_BEFORE - _LINES), STEPS_BEFORE)
        lines = [f"step {step} loss {2.5 - step / 1000 + chance.random() / 100:.4f}\n" for step in steps]
        (folder / f"log_rank_{rank}.txt").write_text("".join(lines), "utf-8")


def _truth(world: World) -> str:
    causes = ", ".join(f'"{cause}"' for cause in sorted(world.causes))
    return (
        f'title = "{world.kind}, planted"\nlayout = "TP x EP x DP x PP"\nworld = {world.mesh.ranks}\nbackend = "nccl"\n\n'
        f"[truth]\ncause = [{causes}]\nsuspects = [[{world.rank}]]\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--faults", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--missing", type=float, default=0.02)
    parser.add_argument("--logs", type=int, default=64)
    args = parser.parse_args()
    write_cases(args.folder, args.ranks, args.faults, args.seed, args.missing, args.logs)


if __name__ == "__main__":
    main()
