"""How much machines' messages weigh in addition to a rank's own failure. By themselves they are notes and accuse
nobody.

An Xid counts against a rank only if it is on the GPU that the rank used, is one that ends or hangs a process, is not
only a consequence of another event, and is not known to be from another time than the incident.
"""

from collections.abc import Iterator
from enum import Enum, auto

from msgspec import Struct

from forkpoint.evidence.machine.kinds import APART, RAS, KernelKind
from forkpoint.evidence.machine.places import is_same_host, place_of_bus
from forkpoint.judge.facts.clocks import Clocks, find_clocks
from forkpoint.knowledge.base import Entry, EntryKind, entries
from forkpoint.model.capture import Remark
from forkpoint.model.incident import Incident, fact
from forkpoint.model.log import FAILURES
from forkpoint.model.verdict import Action
from forkpoint.model.world import RankPlace

_HARMLESS = ("none", "slower")
_Span = tuple[int, int]


class XidOrigin(Enum):
    """Where an Xid most likely comes from, according to the knowledge base."""

    HARDWARE = auto()
    APPLICATION = auto()
    OPEN = auto()
    """The driver, or the number alone does not tell."""


class GpuFault(Struct, frozen=True):
    """An Xid on a rank's GPU that can have ended or hung it."""

    rank: int
    remark: Remark
    name: str
    """`Xid 79 (the GPU has fallen off the bus)`."""
    origin: XidOrigin
    timely: bool
    """It belongs to this incident. Otherwise its time cannot be compared: it may be old."""

    @property
    def told(self) -> str:
        doubt = "" if self.timely else ", at a time that cannot be compared"
        return f"the kernel of {self.remark.host} reports {self.name} on its GPU{doubt}"

    def action(self, *, failed: bool) -> Action:
        """`failed`: the rank's own log shows that it failed on that GPU. A single error line never takes a node out."""
        if self.origin is XidOrigin.APPLICATION:
            return Action.FIX_CODE_OR_HARDWARE
        if self.origin is XidOrigin.HARDWARE and self.timely and failed:
            return Action.REPLACE_NODE
        return Action.INVESTIGATE


@fact
def find_gpu_faults(incident: Incident) -> dict[int, GpuFault]:
    """By rank; of several faults, the first that is known to belong to this incident."""
    remarks = [r for r in incident.capture.remarks if r.xid is not None and r.bus_id]
    if not remarks:
        return {}
    clocks = find_clocks(incident)
    spans = _spans(clocks, incident)
    found: dict[int, GpuFault] = {}
    for remark in sorted(remarks, key=lambda r: (r.file, r.line)):
        place = place_of_bus(incident.capture.places, remark.host, remark.bus_id)
        entry = _entry(remark)
        timely = _is_timely(remark, place, clocks, spans) if place and entry else False
        if place is None or entry is None or timely is False:
            continue
        fault = GpuFault(place.rank, remark, f"{entry.name} ({entry.title})", _origin(entry), timely is True)
        if place.rank not in found or (fault.timely and not found[place.rank].timely):
            found[place.rank] = fault
    return found


@fact
def find_memory_kills(incident: Incident) -> dict[int, Remark]:
    """Ranks whose process the kernel of their host killed for memory. In a container the pids may not be the host's."""
    kills = [r for r in incident.capture.remarks if r.kind == KernelKind.OOM_KILL and r.host]
    return {
        place.rank: kill
        for kill in kills
        for place in incident.capture.places
        if place.pid in kill.pids and is_same_host(place.host, kill.host or "")
    }


def find_unanswering(incident: Incident, world: int) -> dict[int, Remark]:
    """Ranks that did not answer RAS, if it counts as many as the job has. That others answered proves nothing."""
    said = [r for r in incident.capture.remarks if r.kind == RAS and r.size == world]
    return {rank: remark for remark in said for rank in remark.missing}


def _entry(remark: Remark) -> Entry | None:
    """The entry of an Xid that ends or hangs processes; None for others and for unknown numbers."""
    entry = next((e for e in entries(EntryKind.XID) if e.code == str(remark.xid)), None)
    effect = dict(entry.facts).get("effect on a job", "none") if entry else "none"
    return None if effect.startswith(_HARMLESS) else entry


def _origin(entry: Entry) -> XidOrigin:
    said = dict(entry.facts).get("likelier origin", "")
    if said == "hardware":
        return XidOrigin.HARDWARE
    return XidOrigin.APPLICATION if said.startswith("application") else XidOrigin.OPEN


def _is_timely(remark: Remark, place: RankPlace, clocks: Clocks, spans: dict[str, _Span]) -> bool | None:
    """None if its time cannot be compared with the incident's. A line that names the rank's pid was written while it
    was alive.
    """
    if place.pid in remark.pids:
        return True
    instant = clocks.of_remark(remark)
    span = spans.get(instant.clock) if instant else None
    if instant is None or span is None:
        return None
    return span[0] - APART <= instant.second <= span[1] + APART


def _spans(clocks: Clocks, incident: Incident) -> dict[str, _Span]:
    """When the incident was, on each clock."""
    spans: dict[str, _Span] = {}
    for clock, second in _instants(clocks, incident):
        first, last = spans.get(clock, (second, second))
        spans[clock] = min(first, second), max(last, second)
    return spans


def _instants(clocks: Clocks, incident: Incident) -> Iterator[tuple[str, int]]:
    """From the issue of ops that never ended to the last line about a failure."""
    for rank, positions in incident.timeline.positions.items():
        if positions:
            issued = clocks.of_dump(rank, positions[0].op.created_ns)
            yield issued.clock, issued.second
    for event in incident.capture.events:
        said = clocks.of_event(event) if event.kind in FAILURES else None
        if said is not None:
            ran_ms = event.work.ran_ms if event.work else None
            yield said.clock, said.second - (ran_ms or 0) // 1000
            yield said.clock, said.second
