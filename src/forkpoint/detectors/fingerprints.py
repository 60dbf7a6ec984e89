"""Calls that ranks compared before they made them (TORCH_DISTRIBUTED_DEBUG=DETAIL): who called what, by their own words."""

from collections import Counter
from dataclasses import dataclass

from forkpoint.diverge.build import unrecorded_divergence
from forkpoint.model.divergence import Cohort, Divergence, PartingKind, Role
from forkpoint.model.frames import user_frames
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Stack


@dataclass(frozen=True, slots=True)
class Call:
    op: str
    shape: str
    dtype: str

    def __str__(self) -> str:
        return f"{self.op} [{self.shape}] {self.dtype}".rstrip()


@dataclass(frozen=True, slots=True)
class CallMismatch:
    calls: dict[int, Call]
    odd: tuple[int, ...]
    """Those that differ from most of the job; empty where no call is that of most."""
    events: tuple[LogEvent, ...]

    @property
    def is_other_path(self) -> bool:
        """Another operation, or the same from another line."""
        ops = {call.op for call in self.calls.values()}
        places = {_place(event.stack) for event in self.events if event.stack}
        return len(ops) > 1 or len(places) > 1

    @property
    def divergence(self) -> Divergence:
        world = tuple(sorted(self.calls))
        sides = tuple(tuple(r for r in world if self.calls[r] == call) for call in dict.fromkeys(self.calls.values()))
        stacks = {event.rank: event.stack for event in self.events if event.stack}
        cohorts = tuple(
            Cohort(side, Role.WAITING, self.calls[side[0]].op.lower(), stack=stacks.get(side[0])) for side in sides
        )
        return unrecorded_divergence(PartingKind.METADATA, cohorts, self.odd)


@fact
def find_call_mismatch(incident: Incident) -> CallMismatch | None:
    """None also where the numbers in the words are not those of the job: then they are ranks within another group."""
    events = [e for e in incident.capture.events if e.kind is LogKind.CALLS_DIFFER and e.rank is not None]
    if not events or any(e.detail("own") != str(e.rank) for e in events):
        return None
    peers = {int(e.detail("peer") or -1): _call(e, "peer") for e in events}
    calls = {**peers, **{e.rank: _call(e, "own") for e in events if e.rank is not None}}
    usual, times = Counter(calls.values()).most_common(1)[0]
    outvoted = 2 * times > len(incident.timeline.world) + incident.timeline.unseen
    odd = tuple(sorted(rank for rank, call in calls.items() if call != usual)) if outvoted else ()
    return CallMismatch(calls, odd, tuple(events))


def _call(event: LogEvent, whose: str) -> Call:
    return Call(*(event.detail(f"{whose}_{part}") or "" for part in ("op", "shape", "dtype")))


def _place(stack: Stack) -> tuple[tuple[str, int], ...]:
    return tuple((frame.filename, frame.line) for frame in user_frames(stack))
