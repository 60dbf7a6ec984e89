"""`replicas_rank_N.jsonl`: checks of values that must be equal on several ranks. docs/replicas.md has the format.

A process that was started again appends to its file: only its last run is kept, since steps count from its start.
"""

from collections.abc import Sequence
from typing import Final

from forkpoint.ingest.value_lines import MAX_RANKS, JsonLine, pairs, whole, wholes, words, world_size
from forkpoint.model.values import DesyncKind, Mismatch, Recheck, ReplicaLog

_MAX_SUM: Final = 64
_KINDS: Final = {kind.value: kind for kind in DesyncKind}


def read_replicas(lines: Sequence[JsonLine], name: str, *, cut: bool) -> ReplicaLog | None:
    """None: the file does not say its rank."""
    starts = [place for place, line in enumerate(lines) if line.told.get("record") == "start"]
    rank = whole(lines[starts[-1]].told.get("rank")) if starts else None
    if rank is None:
        return None
    run = lines[starts[-1] + 1 :]
    equal = {step: line.number for line in reversed(run) if (step := _equal_step(line)) is not None}
    return ReplicaLog(
        file=name,
        rank=rank,
        world=world_size(lines[starts[-1]].told),
        equal=tuple(sorted(equal.items())),
        mismatches=tuple(found for line in run if (found := _read_mismatch(line, name, rank))),
        rechecks=tuple(found for line in run if (found := _read_recheck(line, name, rank))),
        cut=cut,
    )


def _equal_step(line: JsonLine) -> int | None:
    return whole(line.told.get("step")) if line.told.get("record") == "equal" else None


def _read_mismatch(line: JsonLine, name: str, rank: int) -> Mismatch | None:
    told = line.told
    step, ranks = whole(told.get("step")), wholes(told.get("ranks"), MAX_RANKS)
    sums = pairs(told.get("checksums"), MAX_RANKS)
    each = tuple(words(sums.get(str(member)))[:_MAX_SUM] for member in ranks)
    if told.get("record") != "mismatch" or step is None or len(set(ranks)) != len(ranks) or len(set(each)) < 2:
        return None
    what = " ".join(word for word in (words(told.get("what")), words(told.get("tensor"))) if word)
    kind = _KINDS.get(words(told.get("kind")), DesyncKind.UNDECIDED)
    return Mismatch(name, line.number, rank, step, what, ranks, each, kind, words(told.get("why")))


def _read_recheck(line: JsonLine, name: str, rank: int) -> Recheck | None:
    told = line.told
    result = words(told.get("result"))
    if told.get("record") != "recheck" or not result:
        return None
    return Recheck(name, line.number, rank, result, whole(told.get("deviates")), words(told.get("why")))
