"""Lines that all ranks print alike, and that one rank prints with another number: what it took for equal was not.

    generation 4: weights taken from member 0      three ranks
    generation 4: weights taken from member 2      one rank

Numbers that differ on every rank (a loss, the rank itself) say nothing. Only whole numbers are compared.
"""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

from forkpoint.model.incident import Incident, fact
from forkpoint.model.verdict import Evidence

_STAMP = re.compile(
    r"^[\[(]?\d{0,4}[-/]?\d\d[-/ ]?\d\d[T _]?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?[\])]?|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
)
_FLOAT = re.compile(
    r"-?\d+\.\d+(?:e[+-]?\d+)?|\d+(?:\.\d+)?(?:ms|s|it/s|%|MB|GB|MiB|GiB)\b|0x[0-9a-f]+|\bnan\b|\binf\b", re.IGNORECASE
)
_INTEGER = re.compile(r"\d{1,18}")
_LEAST = 3
"""Ranks with logs: one of two that differ is not odd."""


@dataclass(frozen=True, slots=True)
class Dissent:
    rank: int
    line: str
    usual: str
    """What the others printed."""
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class _Said:
    numbers: tuple[int, ...]
    text: str


_Told = dict[int, list[_Said]]
"""By rank, in order: lines that differ in numbers alone."""


@fact
def find_dissent(incident: Incident) -> Dissent | None:
    """Of the newest lines in which exactly one rank differs from all others. None where two ranks do so."""
    files = own_logs(incident)
    if len(files) < _LEAST or set(files) != set(incident.timeline.world) or incident.timeline.unseen > 1:
        return None
    forms: dict[str, _Told] = defaultdict(dict)
    for rank, file in files.items():
        for form, said in _lines(incident.capture.log_ends[file].lines).items():
            forms[form][rank] = said
    found = [odd for told in forms.values() if len(told) == len(files) and (odd := _last_odd(told))]
    ranks = {rank for rank, _, _ in found}
    if len(ranks) != 1:
        return None
    rank, own, usual = found[0]
    other = next(r for r in sorted(files) if r != rank)
    cited = (Evidence(files[rank], rank, "end", own), Evidence(files[other], other, "end", usual))
    return Dissent(rank, own, usual, cited)


@fact
def own_logs(incident: Incident) -> dict[int, str]:
    """The log of each rank that has one of its own; of several the last."""
    owners: dict[str, set[int | None]] = defaultdict(set)
    for file, rank in incident.capture.logs:
        owners[file].add(rank)
    alone = {file: ranks for file, ranks in owners.items() if len(ranks) == 1 and file in incident.capture.log_ends}
    return {rank: file for file, ranks in sorted(alone.items()) for rank in ranks if rank is not None}


def _lines(lines: tuple[str, ...]) -> dict[str, list[_Said]]:
    found: dict[str, list[_Said]] = defaultdict(list)
    for line in lines:
        text = _FLOAT.sub("~", _STAMP.sub("", line))
        numbers = tuple(int(n) for n in _INTEGER.findall(text))
        if numbers:
            found[_INTEGER.sub("#", text)].append(_Said(numbers, line))
    return found


def _last_odd(told: _Told) -> tuple[int, str, str] | None:
    """The newest moment that all ranks tell of, if one of them differs there: that rank, its line, and the others'."""
    columns = range(len(next(iter(told.values()))[0].numbers))
    own = {c for c in columns if _is_of_the_rank(c, told)}
    step = next((c for c in columns if c not in own and _rises(c, told)), None)
    if step is None:
        return None
    at = {rank: {one.numbers[step]: one for one in said} for rank, said in told.items()}
    for moment in sorted(set.intersection(*(set(lines) for lines in at.values())), reverse=True):
        lines = {rank: at[rank][moment] for rank in told}
        odd = _odd_rank({rank: [n for c, n in enumerate(one.numbers) if c not in own] for rank, one in lines.items()})
        if odd is not None:
            return odd, lines[odd].text, next(one.text for rank, one in sorted(lines.items()) if rank != odd)
    return None


def _is_of_the_rank(column: int, told: _Told) -> bool:
    """One number on each rank, and another on every one: the rank itself, its port, its process."""
    values = [{one.numbers[column] for one in said} for said in told.values()]
    return all(len(v) == 1 for v in values) and len({next(iter(v)) for v in values}) == len(values)


def _rises(column: int, told: _Told) -> bool:
    """A count of steps: line after line, on every rank."""
    return all(all(a.numbers[column] < b.numbers[column] for a, b in pairwise(said)) for said in told.values())


def _odd_rank(numbers: dict[int, list[int]]) -> int | None:
    """The one that differs in a number on which all others agree; None unless it is one and the same in all such numbers."""
    odd: set[int] = set()
    ranks = sorted(numbers)
    for column in zip(*(numbers[rank] for rank in ranks), strict=True):
        counts = Counter(column)
        if len(counts) == 2 and min(counts.values()) == 1:
            rare = min(counts, key=counts.__getitem__)
            odd.add(ranks[column.index(rare)])
    return odd.pop() if len(odd) == 1 else None
