"""Moments that dumps tell: the last op all did, who issued what at the fork, when a dump was taken."""

from collections.abc import Iterator
from dataclasses import dataclass

from forkpoint.clocks import Clocks
from forkpoint.cohorts import frontier_op
from forkpoint.detectors.cite import describe_slot
from forkpoint.model.divergence import Cohort, Divergence, Role
from forkpoint.model.incident import Incident
from forkpoint.model.op import Op, OpState
from forkpoint.model.timeline import Channel, GroupTimeline
from forkpoint.model.verdict import Evidence, Source
from forkpoint.moments.sighting import Sighting

_MAX_SIZES = 2
_LAST_ISSUED, _COMPLETED, _ISSUED, _TAKEN = -3, -2, -1, 1
"""Within one second: issuing comes before what logs (0) say of it, the dump after."""


@dataclass(frozen=True, slots=True)
class _Told:
    kind: str
    about: str
    says: str
    step: int


def find_recorded(incident: Incident, clocks: Clocks) -> Iterator[Sighting]:
    group = _group(incident)
    if group is not None:
        yield from _last_done(group, incident, clocks)
    divergence = incident.divergence
    if divergence is not None and group is not None:
        ends = incident.timeline.of_channel(group.group, divergence.channel) if divergence.channel else None
        for number, cohort in enumerate(divergence.cohorts):
            for rank, op in _ops(cohort, divergence, ends or group):
                yield _sighting(rank, op, op.created_ns, _tell(op, cohort, number, divergence), incident, clocks)
    yield from _taken(incident, clocks)


def _group(incident: Incident) -> GroupTimeline | None:
    """That of the fork (one of which nothing was recorded has no timeline); the one most used where there is no fork."""
    divergence = incident.divergence
    if divergence is not None:
        return next((g for g in incident.timeline.groups if g.group == divergence.group), None)
    used = [g for g in incident.timeline.groups if any(g.track(rank) for rank in g.traces)]
    return max(used, key=lambda g: (len(g.traces), _last_ns(g), g.group), default=None)


def _last_ns(group: GroupTimeline) -> int:
    return max(track.last.created_ns for rank in group.traces if (track := group.track(rank)))


def _last_done(group: GroupTimeline, incident: Incident, clocks: Clocks) -> Iterator[Sighting]:
    """The last collective that every rank with a dump completed, as each saw its end."""
    # Gone through twice, not kept: a group may have 100,000 members.
    seqs = [op.seq for _, op in _each_last_done(group)]
    if len(seqs) < len(group.traces):
        return
    seq = min(seqs, default=0)
    who = "all" if len(seqs) == len(group.group.ranks) else "all with dumps"
    told = _Told("completed", str(seq), f"completed {group.group} seq {seq}, the last by {who}", _COMPLETED)
    for rank, op in _each_last_done(group):
        if op.seq == seq and op.completed_ns:
            yield _sighting(rank, op, op.completed_ns, told, incident, clocks)


def _each_last_done(group: GroupTimeline) -> Iterator[tuple[int, Op]]:
    return ((rank, op) for rank in group.traces if (track := group.track(rank)) and (op := track.last_done))


def _ops(cohort: Cohort, divergence: Divergence, held: GroupTimeline | Channel) -> Iterator[tuple[int, Op]]:
    """The op at the fork; the last one before it, of ranks that did not come to it."""
    seq = divergence.first_visible_seq
    if seq is None or cohort.role is Role.SILENT:
        return
    for rank in cohort.ranks:
        track = held.end(rank) if isinstance(held, Channel) else held.track(rank)
        op = (frontier_op(track, seq) if cohort.op else track.last) if track else None
        if op is not None:
            yield rank, op


def _tell(op: Op, cohort: Cohort, number: int, divergence: Divergence) -> _Told:
    sizes = " ".join(str(list(size)) for size in op.signatures[0].input_sizes[:_MAX_SIZES])
    call = f"{op.signatures[0].op} {sizes}".strip()
    if cohort.op is None:
        return _Told("last issued", f"{number} {op.seq}", f"issued {call} seq {op.seq}, but not the next", _LAST_ISSUED)
    seq = divergence.first_visible_seq
    slot = describe_slot(divergence) if seq == divergence.seq else f"{divergence.group} seq {seq}"
    return _Told("issued", f"{number}", f"issued {call}, {slot}", _ISSUED)


def _taken(incident: Incident, clocks: Clocks) -> Iterator[Sighting]:
    """An op that its rank was still entering reads `completed` at the moment when the dump was taken."""
    told = _Told("dump taken", "", "dump taken while it was still entering an op", _TAKEN)
    for rank in sorted(incident.timeline.entering):
        positions = incident.timeline.positions.get(rank)
        op = positions[0].op if positions else None
        if op is not None and op.state is OpState.ENTERING and op.completed_ns:
            yield _sighting(rank, op, op.completed_ns, told, incident, clocks)


def _sighting(rank: int, op: Op, ns: int, told: _Told, incident: Incident, clocks: Clocks) -> Sighting:
    file = incident.timeline.traces[rank].file
    return Sighting(
        instant=clocks.of_dump(rank, ns),
        when=None,
        source=Source.RECORDER,
        kind=told.kind,
        about=told.about,
        host=None,
        says=told.says,
        evidence=Evidence(file, rank, f"entry {op.record_id}", told.says),
        line=0,  # entries stand in the order of issue, not in that of these moments
        step=told.step,
    )
