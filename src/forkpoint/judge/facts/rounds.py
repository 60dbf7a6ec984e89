"""How far each rank came, by the lines that programs print round after round.

    actor-1  iter 4 rollout 0.15s        actor-2  iter 4 rollout 0.17s
    actor-1  iter 6 rollout 0.19s

Ranks of one role print lines of one form, each with the number of the round. Only lines that the ranks printed in step,
with the same numbers up to where the shortest log ends, show how far each rank is.
"""

from collections.abc import Iterator

from msgspec import Struct

from forkpoint.judge.facts.contrast import find_printed, split_line
from forkpoint.model.incident import Incident, fact
from forkpoint.model.verdict import Evidence

_LEAST_RANKS = 3
"""With two that print, nothing shows which of them is normal."""
_IN_STEP = 3
"""Rounds before the last that must be equal; fewer if fewer were printed, but at least one."""


class PrintedRounds(Struct, frozen=True):
    """For one form of lines: by rank, which of the foremost rank's lines its last one is."""

    last: dict[int, int]
    cited: dict[int, Evidence]

    def behind(self) -> tuple[int, ...]:
        """Ranks that did not reach the last round."""
        newest = max(self.last.values())
        return tuple(sorted(rank for rank, number in self.last.items() if number < newest))


def find_only_behind(rank: int, incident: Incident) -> PrintedRounds | None:
    """Lines by which all others of its role came further than this rank, if no other lines show it ahead of any."""
    rounds = [one for one in find_rounds(incident) if rank in one.last and one.behind()]
    return rounds[0] if rounds and all(one.behind() == (rank,) for one in rounds) else None


def is_in_step(rank: int, incident: Incident) -> bool:
    """It printed the last round of its role, and so did all others."""
    rounds = [one for one in find_rounds(incident) if rank in one.last]
    return bool(rounds) and not any(one.behind() for one in rounds)


def is_at_own_work(rank: int, others: set[int], incident: Incident) -> bool:
    """Since its last line of a form that the others print too, it printed a line that none of them ever does. It had
    printed that line in an earlier round, after which all ranks continued: so this work is normal for this rank, and
    nobody skipped it.
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
    """Finds the numbers in the line that count rounds on all ranks alike, and by them the place of each rank's last
    line among those of the foremost rank.
    """
    cited = {rank: lines[-1][1] for rank, lines in said.items()}
    values = {rank: [one for one, _ in lines] for rank, lines in said.items()}
    for foremost, lines in values.items() if any(len(own) > 1 for own in values.values()) else ():
        for columns in _shared_columns(values, lines):
            keys = {rank: [tuple(one[c] for c in columns) for one in own] for rank, own in values.items()}
            place = {key: number for number, key in enumerate(keys[foremost])}
            if all(_is_in_step(own, keys[foremost], place) for own in keys.values()):
                yield PrintedRounds({rank: place[own[-1]] for rank, own in keys.items()}, cited)
                return


def _shared_columns(
    values: dict[int, list[tuple[str, ...]]], foremost: list[tuple[str, ...]]
) -> Iterator[tuple[int, ...]]:
    """All columns in which every rank's last line has a number that the foremost rank printed too, then each such
    column alone.
    """
    width = min(len(one) for own in values.values() for one in own)
    seen = [{one[c] for one in foremost} for c in range(width)]
    shared = tuple(c for c in range(width) if all(own[-1][c] in seen[c] for own in values.values()))
    yield from dict.fromkeys([shared, *((c,) for c in shared)] if shared else [])


def _is_in_step(own: list[tuple[str, ...]], foremost: list[tuple[str, ...]], place: dict[tuple[str, ...], int]) -> bool:
    """Every round has its own numbers, and the rank's earlier ones are those of the foremost rank."""
    at = place.get(own[-1])
    if at is None or len(set(own)) < len(own) or len(place) < len(foremost):
        return False
    before = min(_IN_STEP, len(own) - 1, at)
    return own[-1 - before :] == foremost[at - before : at + 1] and (before > 0 or len(own) == at + 1)
