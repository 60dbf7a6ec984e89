"""Checksums that ranks print at each step: equal on all ranks, until one of them differs from all others."""

import re
from collections import defaultdict
from collections.abc import Iterator

from msgspec import Struct

from forkpoint.model.incident import Incident, fact
from forkpoint.model.verdict import Evidence


@fact
def own_logs(incident: Incident) -> dict[int, str]:
    """The log of each rank that has its own; of several, the last."""
    owners = _only_owners(incident)
    return {rank: file for file, rank in sorted(owners.items()) if file in incident.capture.log_ends}


def _only_owners(incident: Incident) -> dict[str, int]:
    """The rank of each log that is of one rank alone."""
    owners: dict[str, set[int | None]] = defaultdict(set)
    for file, rank in incident.capture.logs:
        owners[file].add(rank)
    alone = ((file, next(iter(ranks))) for file, ranks in owners.items() if len(ranks) == 1)
    return {file: rank for file, rank in alone if rank is not None}


# ---------------------------------------------------------------------------------------------------------------------
# Checksums of the model that ranks print at each step: equal on all replicas, until one of them differs from all others.
#
#     [rank 1] step 40 loss 0.00144 param_sha1 ee9c7b2b9f7c
#     [rank 2] step 40 loss 0.00196 param_sha1 fc6084ddad5d
#
# Checksums that differ on every rank (of shards, of batches) say nothing, and neither do those of two halves.

_SPEAKER = re.compile(r"\[rank ?(\d{1,6})\]|\brank[ :=]{1,2}(\d{1,6})\b", re.IGNORECASE)
_STEP = re.compile(r"\b(?:global_)?(?:step|iter|iteration)[ :=#]{1,2}(\d{1,9})\b", re.IGNORECASE)
_HASH = re.compile(
    r"\b(\w{0,20}(?:param|weight|model|state|grad|optim)\w{0,20})[ :=]{1,3}(?:0x)?([0-9a-f]{8,64})\b", re.IGNORECASE
)
_LEAST_RANKS = 3
"""Of two that differ, neither is odd."""
_LEAST_STEPS = 2
"""Minimum number of steps at which the same rank differs: a wrong replica stays wrong."""


class OddHash(Struct, frozen=True):
    rank: int
    step: int
    """The first step at which it differs, of those that the log still holds."""
    name: str
    evidence: tuple[Evidence, ...]


class _Printed(Struct, frozen=True):
    file: str
    value: str
    text: str


_Steps = dict[int, dict[int, _Printed]]
"""Checksums by step, then by rank."""


def find_odd_hash(incident: Incident) -> OddHash | None:
    """The one rank that differs from all others, which agree, at every step from its first difference on."""
    for name, steps in _read_hashes(incident).items():
        ranks = {rank for said in steps.values() for rank in said} | set(incident.timeline.world)
        rank = _odd_hash(steps[max(steps)], ranks)
        parted = [step for step, said in sorted(steps.items()) if len({p.value for p in said.values()}) > 1]
        if rank is None or len(parted) < _LEAST_STEPS or not all(_has_odd_hash(rank, steps[step]) for step in parted):
            continue
        said = steps[parted[0]]
        other = next(r for r in sorted(said) if r != rank)
        cited = tuple(Evidence(said[r].file, r, f"step {parted[0]}", said[r].text) for r in (rank, other))
        return OddHash(rank, parted[0], name, cited)
    return None


def hashes_part(incident: Incident) -> bool:
    """Ranks print checksums that were equal at some step and are not at another."""
    for steps in _read_hashes(incident).values():
        values = [{printed.value for printed in said.values()} for said in steps.values() if len(said) > 1]
        if any(len(one) == 1 for one in values) and any(len(one) > 1 for one in values):
            return True
    return False


def _odd_hash(said: dict[int, _Printed], ranks: set[int]) -> int | None:
    """For a step at which all of them printed it."""
    if len(ranks) < _LEAST_RANKS or said.keys() != ranks:
        return None
    return next((rank for rank in sorted(said) if _has_odd_hash(rank, said)), None)


def _has_odd_hash(rank: int, said: dict[int, _Printed]) -> bool:
    """It differs from the other ranks that printed this step, and those agree."""
    others = {printed.value for other, printed in said.items() if other != rank}
    return rank in said and len(others) == 1 and said[rank].value not in others


def _read_hashes(incident: Incident) -> dict[str, _Steps]:
    found: dict[str, _Steps] = defaultdict(lambda: defaultdict(dict))
    owners = _only_owners(incident)
    for file, ending in incident.capture.log_ends.items():
        for rank, step, name, printed in _hash_lines(file, ending.lines, owners.get(file)):
            found[name][step].setdefault(rank, printed)
    return found


def _hash_lines(file: str, lines: tuple[str, ...], owner: int | None) -> Iterator[tuple[int, int, str, _Printed]]:
    for line in lines:
        if len(_SPEAKER.findall(line)) > 1:
            continue  # two ranks wrote at the same time
        step, value, speaker = _STEP.search(line), _HASH.search(line), _SPEAKER.search(line)
        rank = int(speaker[1] or speaker[2]) if speaker else owner
        if step and value and rank is not None and re.search("[a-f]", value[2], re.IGNORECASE):
            yield rank, int(step[1]), value[1].lower(), _Printed(file, value[2].lower(), line)
