"""Replicas that were not equal: who differs from the rest, as far as a vote can say.

Each rank that took part writes the same down, so one file is enough and several must agree. The vote is counted here
from the checksums: what a file says of it is not needed.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from forkpoint.model.values import DesyncKind, Mismatch, ReplicaLog, Values
from forkpoint.model.verdict import Evidence

_FEWEST = 3
"""Of two replicas that differ nothing says which is right."""


@dataclass(frozen=True, slots=True)
class Vote:
    """The first check in which replicas were not equal."""

    step: int
    mismatches: tuple[Mismatch, ...]
    """One per value and group, by name."""
    odd: tuple[int, ...]
    """Ranks that differ from more than half of their replicas. Empty where there is no such majority, or files disagree."""
    kind: DesyncKind
    equal_until: tuple[Evidence, int] | None
    """The last check before in which all was equal, and its step."""
    disputed: bool
    """Files say different things of one check."""


def find_vote(values: Values) -> Vote | None:
    told = [m for log in values.replicas for m in log.mismatches]
    if not told:
        return None
    step = min(m.step for m in told)
    first = sorted((m for m in told if m.step == step), key=lambda m: (m.what, m.ranks, m.rank))
    by_value = {(m.what, m.ranks): m for m in reversed(first)}
    disputed = len({m.told for m in first}) > len(by_value) or _denied(step, first, values)
    mismatches = tuple(by_value[key] for key in sorted(by_value))
    odd = () if disputed else tuple(sorted({rank for m in mismatches for rank in _odd_replicas(m)}))
    return Vote(step, mismatches, odd, _kind(mismatches), _last_equal(step, mismatches, values), disputed)


def _odd_replicas(mismatch: Mismatch) -> tuple[int, ...]:
    usual, count = Counter(mismatch.checksums).most_common(1)[0]
    if len(mismatch.ranks) < _FEWEST or 2 * count <= len(mismatch.ranks):
        return ()
    return tuple(r for r, sum_ in zip(mismatch.ranks, mismatch.checksums, strict=True) if sum_ != usual)


def cite_vote(vote: Vote, values: Values) -> tuple[Evidence, ...]:
    """What two ranks wrote of it, the odd one first, and the last check in which all was well."""
    same = [m for log in values.replicas for m in log.mismatches if m.told == vote.mismatches[0].told]
    same.sort(key=lambda m: (m.rank not in vote.odd, m.rank))
    cited = [Evidence(m.file, m.rank, f"line {m.line}", _says(m)) for m in same[:2]]
    return (*cited, *([vote.equal_until[0]] if vote.equal_until else []))


def _says(mismatch: Mismatch) -> str:
    sums = ", ".join(f"rank {r} {s}" for r, s in list(zip(mismatch.ranks, mismatch.checksums, strict=True))[:8])
    told = mismatch.why if mismatch.kind is DesyncKind.SOFTWARE else sums
    return f"step {mismatch.step}: {mismatch.what} is not equal on its replicas: {told}"


def _kind(mismatches: tuple[Mismatch, ...]) -> DesyncKind:
    """A step that one rank left out explains every tensor that differs."""
    kinds = {m.kind for m in mismatches}
    if DesyncKind.SOFTWARE in kinds:
        return DesyncKind.SOFTWARE
    return kinds.pop() if len(kinds) == 1 else DesyncKind.UNDECIDED


def _denied(step: int, mismatches: Sequence[Mismatch], values: Values) -> bool:
    """A rank that is said to have taken part wrote that all was equal in that check."""
    return any(s == step for log in _logs_of(mismatches, values) for s, _ in log.equal)


def _last_equal(step: int, mismatches: Sequence[Mismatch], values: Values) -> tuple[Evidence, int] | None:
    found = [(s, line, log) for log in _logs_of(mismatches, values) for s, line in log.equal if s < step]
    if not found:
        return None
    last, line, log = max(found, key=lambda item: (item[0], -item[2].rank))
    return Evidence(log.file, log.rank, f"line {line}", f"step {last}: all replicas were equal"), last


def _logs_of(mismatches: Sequence[Mismatch], values: Values) -> list[ReplicaLog]:
    """Of the ranks that hold these values: others may have been equal among themselves."""
    ranks = {rank for m in mismatches for rank in m.ranks}
    return [log for log in values.replicas if log.rank in ranks]
