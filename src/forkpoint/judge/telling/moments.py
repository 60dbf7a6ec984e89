"""Incident -> Moments: what happened when, from dumps, logs, stacks and machines, as one timeline."""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime

from msgspec import Struct

from forkpoint.diverge.cohorts import frontier_op
from forkpoint.evidence.machine.kinds import RAS
from forkpoint.evidence.machine.places import place_of_bus
from forkpoint.judge.facts.cite import cite_event, cite_stack, describe_slot, describe_stack
from forkpoint.judge.facts.clocks import Clocks, find_clocks
from forkpoint.judge.facts.sightings import Same, Sighting, in_order
from forkpoint.model.incident import Cohort, Divergence, Incident, Role
from forkpoint.model.log import FAILURES, LogEvent, LogKind
from forkpoint.model.op import Op, OpState
from forkpoint.model.timeline import Channel, GroupTimeline
from forkpoint.model.verdict import NOT_DATED, Evidence, Moment, Source

# ---------------------------------------------------------------------------------------------------------------------
# Moments from logs and stacks. A line without a time came no later than the next line of its file that has one.

_TOLD = FAILURES | {
    LogKind.DUMP_SIGNAL,
    LogKind.DUMPED,
    LogKind.DUMP_FAILED,
    LogKind.EXITED,
    LogKind.AGENT_FAILURE,
    LogKind.AGENT_STOP,
    LogKind.CANCELLED,
    LogKind.LEAVING,
    LogKind.LEFT,
    LogKind.RAS,
    LogKind.HOST_STALL,
    LogKind.HARDWARE_HINT,
}
_SAYS = {
    LogKind.DUMPED: "began to write the dump",
    LogKind.LEAVING: "began to destroy the process groups",
    LogKind.LEFT: "destroyed the process group",
    LogKind.GIL_HELD: "could not get the GIL",
}
"""If every line of a kind says the same, it is reported once for all ranks."""
_MAX_SAYS = 160
_PREFIX = re.compile(r"^(?:\[[^\]]{1,160}\]\s{1,4}){1,3}")
_Speaker = tuple[str, int | None]


class _Lines(Struct, frozen=True):
    """Lines with a time, by file and rank, in the order of the file."""

    dated: dict[_Speaker, list[LogEvent]]

    def at_or_after(self, file: str, rank: int | None, line: int) -> LogEvent | None:
        lines = self.dated.get((file, rank), [])
        at = bisect_left(lines, line, key=lambda event: event.line)
        return lines[at] if at < len(lines) else None


def find_said(incident: Incident, clocks: Clocks) -> Iterator[Sighting]:
    found: dict[_Speaker, list[LogEvent]] = defaultdict(list)
    for event in sorted(incident.capture.events, key=lambda e: e.line):
        if event.time:
            found[event.file, event.rank].append(event)
    lines = _Lines(found)
    for event in incident.capture.events:
        if event.kind in _TOLD:
            dating = event if event.time else lines.at_or_after(event.file, event.rank, event.line)
            about, says = _tell_event(event)
            told = (Source.LOG, event.kind.value, about, says)
            yield _log_sighting(told, cite_event(event), event.line, event.speaker.host, dating, clocks)
    for stack in incident.capture.stacks:
        says = f"was {describe_stack(stack.stack)}"
        dating = lines.at_or_after(stack.file, stack.rank, stack.line)
        yield _log_sighting((Source.STACK, "stack", says, says), cite_stack(stack), stack.line, None, dating, clocks)


def _log_sighting(
    told: tuple[Source, str, str, str],
    evidence: Evidence,
    line: int,
    host: str | None,
    dating: LogEvent | None,
    clocks: Clocks,
) -> Sighting:
    instant = clocks.of_event(dating) if dating else None
    return Sighting(
        instant,
        dating.time if dating and instant else None,
        *told[:3],
        host=host,
        says=told[3],
        evidence=evidence,
        line=line,
        bound=instant is not None and dating is not None and dating.line != line,
    )


def _tell_event(event: LogEvent) -> tuple[str, str]:
    """The key that identifies the same moment on other ranks, and its text."""
    if event.kind in _SAYS:
        return "", _SAYS[event.kind]
    if event.kind is LogKind.DUMP_SIGNAL:
        first = "First PG on this rank" in event.text
        return str(first), "asked all ranks for dumps" if first else "was asked for a dump"
    work = event.work
    if work is not None and event.kind is LogKind.WATCHDOG_TIMEOUT:
        ran = f" after {work.ran_ms / 1000:.1f} s" if work.ran_ms is not None else ""
        return f"{work.op} {work.seq}", f"timed out in {work.op} seq {work.seq}{ran}"
    text = _PREFIX.sub("", event.text)
    if event.kind is LogKind.ASYNC_ERROR and event.seq is not None:
        text = f"seq {event.seq} raised {text.rpartition('exception: ')[2]}"
    return text[:_MAX_SAYS], f"logged: {text[:_MAX_SAYS]}"


# ---------------------------------------------------------------------------------------------------------------------
# Moments from machines: kernels, and NCCL's RAS.

MAX_REMARKS = 200
"""A machine can log more than a timeline holds."""


def find_remarked(incident: Incident, clocks: Clocks) -> Iterator[Sighting]:
    for remark in sorted(incident.capture.remarks, key=lambda r: (r.xid is None, r.file, r.line))[:MAX_REMARKS]:
        place = place_of_bus(incident.capture.places, remark.host, remark.bus_id)
        instant = clocks.of_remark(remark)
        yield Sighting(
            instant=instant,
            when=remark.when if instant else None,
            source=Source.RAS if remark.kind == RAS else Source.KERNEL,
            kind=remark.kind,
            about=f"{remark.host} {remark.bus_id} {remark.says}",
            host=remark.host,
            says=remark.says,
            evidence=Evidence(remark.file, place.rank if place else None, f"line {remark.line}", remark.says),
            line=remark.line,
        )


# ---------------------------------------------------------------------------------------------------------------------
# Moments from dumps: the last op that all finished, who issued what at the fork, when a dump was taken.

_MAX_SIZES = 2
_LAST_ISSUED, _COMPLETED, _ISSUED, _TAKEN = -3, -2, -1, 1
"""Order within one second: ops are issued before what logs (0) report about them, and dumps are taken after it."""


class _Told(Struct, frozen=True):
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
                yield _op_sighting(rank, op, op.created_ns, _tell_op(op, cohort, number, divergence), incident, clocks)
    yield from _taken(incident, clocks)


def _group(incident: Incident) -> GroupTimeline | None:
    """The group of the fork (if nothing of it was recorded, it has no timeline); without a fork, the most used one."""
    divergence = incident.divergence
    if divergence is not None:
        return next((g for g in incident.timeline.groups if g.group == divergence.group), None)
    used = [g for g in incident.timeline.groups if any(g.track(rank) for rank in g.traces)]
    return max(used, key=lambda g: (len(g.traces), _last_ns(g), g.group), default=None)


def _last_ns(group: GroupTimeline) -> int:
    return max(track.last.created_ns for rank in group.traces if (track := group.track(rank)))


def _last_done(group: GroupTimeline, incident: Incident, clocks: Clocks) -> Iterator[Sighting]:
    """The last collective that every rank with a dump completed, as each saw its end."""
    # iterated twice instead of kept: a group may have 100,000 members.
    seqs = [op.seq for _, op in _each_last_done(group)]
    if len(seqs) < len(group.traces):
        return
    seq = min(seqs, default=0)
    who = "all" if len(seqs) == len(group.group.ranks) else "all with dumps"
    told = _Told("completed", str(seq), f"completed {group.group} seq {seq}, the last {who} did", _COMPLETED)
    for rank, op in _each_last_done(group):
        if op.seq == seq and op.completed_ns:
            yield _op_sighting(rank, op, op.completed_ns, told, incident, clocks)


def _each_last_done(group: GroupTimeline) -> Iterator[tuple[int, Op]]:
    return ((rank, op) for rank in group.traces if (track := group.track(rank)) and (op := track.last_done))


def _ops(cohort: Cohort, divergence: Divergence, held: GroupTimeline | Channel) -> Iterator[tuple[int, Op]]:
    """The op at the fork, or, for ranks that did not come to it, their last one before it."""
    seq = divergence.first_visible_seq
    if seq is None or cohort.role is Role.SILENT:
        return
    for rank in cohort.ranks:
        track = held.end(rank) if isinstance(held, Channel) else held.track(rank)
        op = (frontier_op(track, seq) if cohort.op else track.last) if track else None
        if op is not None:
            yield rank, op


def _tell_op(op: Op, cohort: Cohort, number: int, divergence: Divergence) -> _Told:
    sizes = " ".join(str(list(size)) for size in op.signatures[0].input_sizes[:_MAX_SIZES])
    call = f"{op.signatures[0].op} {sizes}".strip()
    if cohort.op is None:
        return _Told("last issued", f"{number} {op.seq}", f"issued {call} seq {op.seq}, but not the next", _LAST_ISSUED)
    seq = divergence.first_visible_seq
    slot = describe_slot(divergence) if seq == divergence.seq else f"{divergence.group} seq {seq}"
    return _Told("issued", f"{number}", f"issued {call}, {slot}", _ISSUED)


def _taken(incident: Incident, clocks: Clocks) -> Iterator[Sighting]:
    """An op that its rank was still entering reads `completed` at the time when the dump was taken."""
    told = _Told("dump taken", "", "dump taken while it was still entering an op", _TAKEN)
    for rank in sorted(incident.timeline.entering):
        positions = incident.timeline.positions.get(rank)
        op = positions[0].op if positions else None
        if op is not None and op.state is OpState.ENTERING and op.completed_ns:
            yield _op_sighting(rank, op, op.completed_ns, told, incident, clocks)


def _op_sighting(rank: int, op: Op, ns: int, told: _Told, incident: Incident, clocks: Clocks) -> Sighting:
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
        line=0,  # entries are in the order of issue, not in that of these moments
        step=told.step,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Incident -> Moments: what happened when, from dumps, logs, stacks and machines, as one timeline.
#
# Times are compared only on one clock (`clocks`). Many ranks that report the same are one moment.

MAX_MOMENTS = 200


def find_moments(incident: Incident) -> tuple[Moment, ...]:
    """Ordered clock by clock: first the clock of most dumps, then the others by name, then what has no time."""
    clocks = find_clocks(incident)
    hosts = {place.rank: place.host for place in incident.capture.places}
    by_clock: dict[str, dict[tuple[str, ...], Same]] = defaultdict(lambda: defaultdict(Same))
    for find in (find_recorded, find_said, find_remarked):
        for one in find(incident, clocks):
            by_clock[one.clock][one.source, one.kind, one.about, str(one.bound)].add(one)
    lanes = sorted(by_clock, key=lambda clock: (clock == NOT_DATED, clock != clocks.common, clock))
    told = [same for clock in lanes for same in in_order(by_clock[clock].values(), limit=MAX_MOMENTS)]
    return tuple(_moment(same, hosts, clocks.common) for same in told[:MAX_MOMENTS])


def _moment(same: Same, hosts: dict[int, str], common: str) -> Moment:
    first, last = same.first, same.last
    told = {one.evidence.rank: one.host for one in same.sightings}
    where = {told.get(rank) or hosts.get(rank) for rank in same.ranks} or {first.host}
    return Moment(
        when=_when(first),
        until=_when(last) if last.second != first.second else None,
        bound=first.bound,
        utc=_utc(first.second) if first.clock == common else None,
        clock=first.clock,
        source=first.source,
        kind=first.kind,
        ranks=tuple(sorted(same.ranks)),
        host=where.pop() if len(where) == 1 else None,
        says=first.says,
        evidence=first.evidence,
    )


def _when(one: Sighting) -> str | None:
    return _utc(one.second) if one.source is Source.RECORDER else one.when


def _utc(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
