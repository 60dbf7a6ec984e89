"""Ranks that had issued other numbers of calls at the end of the same training step: what `guard.step` tells."""

from collections import Counter
from dataclasses import dataclass

from forkpoint.model.incident import Incident
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Evidence


@dataclass(frozen=True, slots=True)
class StepParting:
    group: str
    step: int
    odd: tuple[int, ...]
    """Empty where no number is that of most ranks."""
    by: int
    """Calls that the odd ranks have more, or fewer (negative), than the others; 0 where nobody is odd."""
    evidence: tuple[Evidence, ...]

    @property
    def told(self) -> str:
        where = f"in group {self.group} by the end of step {self.step}"
        if not self.odd:
            return f"ranks had issued different numbers of calls {where}"
        more = f"{abs(self.by)} {'more' if self.by > 0 else 'fewer'} call{'s' if abs(self.by) > 1 else ''}"
        return f"{name_ranks(self.odd)} had issued {more} than the others {where}"


def find_step_parting(incident: Incident) -> StepParting | None:
    """The earliest step at whose end ranks differ; of those that all ranks told, if there is one."""
    counts: dict[tuple[int, str], dict[int, int]] = {}
    for count in incident.capture.steps:
        counts.setdefault((count.step, count.group), {})[count.rank] = count.calls
    parted = [(key, calls) for key, calls in sorted(counts.items()) if len(set(calls.values())) > 1]
    whole = [(key, calls) for key, calls in parted if len(calls) == len(incident.timeline.world)]
    for (step, group), calls in (whole or parted)[:1]:
        return _parting(group, step, calls, incident)
    return None


def _parting(group: str, step: int, calls: dict[int, int], incident: Incident) -> StepParting:
    usual, times = Counter(calls.values()).most_common(1)[0]
    decided = 2 * times > len(incident.timeline.world)
    odd = tuple(sorted(rank for rank, n in calls.items() if n != usual)) if decided else ()
    by = {calls[rank] - usual for rank in odd}
    file = next(c.file for c in incident.capture.steps)
    shown = [*odd[:2], *(rank for rank in sorted(calls) if rank not in odd)][:4]
    return StepParting(
        group,
        step,
        odd,
        by.pop() if len(by) == 1 else 0,
        tuple(Evidence(file, r, f"step {step}", f"{calls[r]} calls in group {group}") for r in shown),
    )
