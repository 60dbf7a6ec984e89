"""Which slots get arrows between ranks: those around the places where ranks part."""

from collections.abc import Iterator
from itertools import count, islice

from forkpoint.model.divergence import Divergence
from forkpoint.model.verdict import Verdict

MAX_SLOTS = 200
"""More arrows than these hide what they should show."""

Ends = tuple[int, int] | None


class Slots:
    """The slots chosen, by number. A slot belongs to a group and a channel, or to a group's collectives."""

    def __init__(self, verdict: Verdict) -> None:
        found = [verdict.divergence, *(finding.divergence for finding in verdict.findings)]
        self._partings = tuple(dict.fromkeys(d for d in found if d is not None and _middle(d) is not None))
        chosen = islice(self._nearest_first(), MAX_SLOTS)
        self._numbers = {slot: number for number, slot in enumerate(dict.fromkeys(chosen), 1)}

    def number(self, name: str, members: tuple[int, ...] | None, channel: Ends, seq: int) -> int | None:
        """None: no arrows here. A dump that does not state a group's members is taken at its name."""
        for place, parting in enumerate(self._partings):
            group = parting.group
            same = group.name == name and parting.channel == channel and members in {None, group.ranks}
            if same and (place, seq) in self._numbers:
                return self._numbers[place, seq]
        return None

    def _nearest_first(self) -> Iterator[tuple[int, int]]:
        """(index of the parting, seq), from the middle outwards."""
        if not self._partings:
            return
        for distance in count():
            for place, parting in enumerate(self._partings):
                middle = _middle(parting)
                assert middle is not None  # others are left out above
                yield place, middle + distance
                if 0 < distance <= middle:
                    yield place, middle - distance


def _middle(parting: Divergence) -> int | None:
    seqs = (parting.seq, parting.first_visible_seq, parting.hang_seq)
    return next((seq for seq in seqs if seq is not None), None)
