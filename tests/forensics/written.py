"""Files of recorded values, written down line by line as the libraries would."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WORLD = 4
GROUPS = ("embed", "layers.0", "head")

Changes = Mapping[tuple[int, int], Mapping[str, Any]]
"""(rank, step) -> what differs there."""


def head(rank: int, world: int = WORLD) -> dict[str, Any]:
    return {"schema": "forkpoint.forensics/1", "rank": rank, "world": world, "every": 1, "groups": [*GROUPS]}


def usual_step(rank: int, step: int) -> dict[str, Any]:
    """Norms as small batches give them, the same every time."""
    jitter = random.Random(1000 * rank + step)
    norms = [round(jitter.lognormvariate(0.0, 0.3), 6) for _ in GROUPS]
    return {
        "step": step,
        "loss": round(jitter.lognormvariate(0.5, 0.1), 6),
        "norm": norms,
        "max": [round(norm / 4, 6) for norm in norms],
        "nonfinite": [0] * len(GROUPS),
        "data": [8 * (step * WORLD + rank) + k for k in range(8)],
    }


def write_forensics(
    folder: Path,
    changes: Changes | None = None,
    ranks: Sequence[int] = range(WORLD),
    steps: int = 60,
    world: int = WORLD,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for rank in ranks:
        told = [usual_step(rank, step) | dict((changes or {}).get((rank, step), {})) for step in range(steps)]
        write_lines(folder / f"forensics_rank_{rank}.jsonl", [head(rank, world), *told])


def write_lines(path: Path, lines: Sequence[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def data_of(rank: int, step: int) -> list[int]:
    return usual_step(rank, step)["data"]


NAN = {"loss": "nan", "norm": ["nan"] * 3, "max": ["nan"] * 3, "nonfinite": [5, 6, 7], "first_nonfinite": "head.weight"}
SPIKE = {"norm": [1.0, 4000.0, 1.0]}


def start(rank: int, world: int = WORLD) -> dict[str, Any]:
    return {"schema": "forkpoint.replicas/1", "record": "start", "rank": rank, "world": world, "every": 10}


def equal(rank: int, step: int) -> dict[str, Any]:
    return {"schema": "forkpoint.replicas/1", "record": "equal", "rank": rank, "step": step, "since": 1}


def mismatch(rank: int, step: int, sums: Mapping[int, str], **changed: Any) -> dict[str, Any]:
    told = {"schema": "forkpoint.replicas/1", "record": "mismatch", "rank": rank, "step": step, "ranks": [*sums]}
    told |= {"what": "parameter", "tensor": "head.weight", "checksums": {str(r): s for r, s in sums.items()}}
    return told | {"kind": "suspected-hardware", "why": "1 of 64 pieces of the tensor differ"} | changed


def recheck(rank: int, deviates: int | None, result: str) -> dict[str, Any]:
    told = {"schema": "forkpoint.replicas/1", "record": "recheck", "rank": rank, "ranks": [1, 2], "suspect": 2}
    return told | {"result": result, "deviates": deviates, "why": "twice the same"}


def write_replicas(
    folder: Path, *found: Mapping[str, Any], ranks: Sequence[int] = range(WORLD), world: int = WORLD
) -> None:
    """All ranks write the same of a check. `found` is told after checks at step 10 and 20 in which all was equal."""
    for rank in ranks:
        told = [dict(line) | {"rank": rank} for line in found]
        lines = [start(rank, world), equal(rank, 10), equal(rank, 20), *told]
        write_lines(folder / f"replicas_rank_{rank}.jsonl", lines)


RANK_2_ODD = {0: "9f0c", 1: "9f0c", 2: "03b7", 3: "9f0c"}
