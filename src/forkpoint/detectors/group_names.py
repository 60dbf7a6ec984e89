"""Groups that ranks did not make alike. Names of groups are counted, so who makes one more, or one less, gives the next one the
name of another: ranks then wait for each other in groups that are not the same.
"""

from collections import Counter
from dataclasses import dataclass

from forkpoint.detectors.cite import cite_event
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Evidence


@dataclass(frozen=True, slots=True)
class GroupMismatch:
    name: str
    sizes: dict[int, int]
    """By rank: how many members the group has there."""
    odd: tuple[int, ...]
    events: tuple[LogEvent, ...]

    @property
    def told(self) -> str:
        sides: dict[int, list[int]] = {}
        for rank, size in sorted(self.sizes.items()):
            sides.setdefault(size, []).append(rank)
        members = ", ".join(f"{size} members on {name_ranks(ranks)}" for size, ranks in sides.items())
        return f"group {self.name} has {members}: ranks did not make the same new_group calls"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        first = {
            size: next(e for e in self.events if self.sizes.get(e.rank or 0) == size)
            for size in set(self.sizes.values())
        }
        return tuple(cite_event(event) for event in first.values())


def find_group_mismatch(incident: Incident) -> GroupMismatch | None:
    """Of the first group, by number, that ranks say to have made with different sizes (at INFO level)."""
    made: dict[str, dict[int, LogEvent]] = {}
    for event in incident.capture.events:
        name = event.detail("group_name") if event.kind is LogKind.SETTINGS else None
        if name and event.rank is not None and event.detail("size"):
            made.setdefault(name, {})[event.rank] = event
    for name in sorted((n for n in made if n.isdigit()), key=int):
        sizes = {rank: int(event.detail("size") or 0) for rank, event in made[name].items()}
        if len(set(sizes.values())) > 1:
            usual, times = Counter(sizes.values()).most_common(1)[0]
            odd = tuple(sorted(r for r, size in sizes.items() if size != usual))
            named = odd if 2 * times > len(incident.timeline.world) else ()
            return GroupMismatch(name, sizes, named, tuple(made[name].values()))
    return None
