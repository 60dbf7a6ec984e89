"""How far each rank came, by the lines that programs print round after round.

    actor-1  iter 4 rollout 0.15s        actor-2  iter 4 rollout 0.17s
    actor-1  iter 6 rollout 0.19s

Ranks of one role print lines of one form, each with the number of the round. Only lines that the ranks printed in step, with the same
numbers up to where the shortest ends, tell how far each of them is.
"""

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from forkpoint.judge.contrast import find_printed, split_line
from forkpoint.model.incident import Incident, fact
from forkpoint.model.verdict import Evidence

_LEAST_RANKS = 3
"""Of two that print, nobody says which goes the usual way."""
_IN_STEP = 3
"""Rounds before the last that must be the same; fewer where fewer were printed, and at least one."""


class PrintedRounds(Struct, frozen=True):
    """Of one form of lines: by rank, the last round that it printed."""

    last: dict[int, int]
    cited: dict[int, Evidence]

    def behind(self) -> tuple[int, ...]:
        """Those that did not come to the last round."""
        newest = max(self.last.values())
        return tuple(sorted(rank for rank, number in self.last.items() if number < newest))


def find_only_behind(rank: int, incident: Incident) -> PrintedRounds | None:
    """Lines by which all others of its role came further than this rank, where no other lines say that it was ahead of any."""
    rounds = [one for one in find_rounds(incident) if rank in one.last and one.behind()]
    return rounds[0] if rounds and all(one.behind() == (rank,) for one in rounds) else None


def is_in_step(rank: int, incident: Incident) -> bool:
    """It printed the last round of its role, and so did all others."""
    rounds = [one for one in find_rounds(incident) if rank in one.last]
    return bool(rounds) and not any(one.behind() for one in rounds)


def is_at_own_work(rank: int, others: set[int], incident: Incident) -> bool:
    """Since its last line of a form that the others print too, it printed a line that none of them ever does; and it had printed it in
    an earlier round, after which all of them went on: so it is this rank's work, and nobody skipped it.
    """
    said: dict[int, list[str]] = {}
    for _, speaker, line in find_printed(incident):
        said.setdefault(speaker, []).append(split_line(line.text)[0])
    own, theirs = said.get(rank, []), {form for other in others for form in said.get(other, [])}
    shared = [n for n, form in enumerate(own) if form in theirs]
    return bool(shared) and not set(own[: shared[-1]]).isdisjoint(own[shared[-1] + 1 :])


@fact
def find_rounds(incident: Incident) -> tuple[PrintedRounds, ...]:
    forms: dict[str, dict[int, list[tuple[tuple[str, ...], Evidence]]]] = {}
    for file, rank, line in find_printed(incident):
        form, values = split_line(line.text)
        said = (values, Evidence(file, rank, f"line {line.line}", line.text))
        forms.setdefault(form, {}).setdefault(rank, []).append(said)
    return tuple(rounds for said in forms.values() if len(said) >= _LEAST_RANKS for rounds in _rounds(said))


def _rounds(said: dict[int, list[tuple[tuple[str, ...], Evidence]]]) -> Iterator[PrintedRounds]:
    """By the first number of the line that counts rounds on all ranks alike."""
    cited = {rank: lines[-1][1] for rank, lines in said.items()}
    for column in range(min(len(values) for lines in said.values() for values, _ in lines)):
        numbers = {rank: _counted([values[column] for values, _ in lines]) for rank, lines in said.items()}
        if all(numbers.values()) and _are_in_step(list(numbers.values())):
            yield PrintedRounds({rank: counted[-1] for rank, counted in numbers.items()}, cited)
            return


def _counted(texts: list[str]) -> list[int]:
    """Empty unless the numbers rise."""
    numbers = [int(text) for text in texts if text.isdigit()]
    rises = len(numbers) == len(texts) and all(a < b for a, b in pairwise(numbers))
    return numbers if rises else []


def _are_in_step(numbers: list[list[int]]) -> bool:
    shared = min(counted[-1] for counted in numbers)
    before = [tuple(n for n in counted if n <= shared)[-_IN_STEP:] for counted in numbers]
    return len(set(before)) == 1 and bool(before[0]) and max(map(len, numbers)) > 1
