"""Evidence for findings: facts a reader can open, taken from the incident."""

from forkpoint.cohorts import frontier_op
from forkpoint.model.capture import LiveStack, LogEvent, LogKind
from forkpoint.model.divergence import Cohort, Divergence, Role
from forkpoint.model.incident import Incident
from forkpoint.model.op import Op, Stack
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.trace import Track
from forkpoint.model.verdict import Evidence

PER_COHORT = 2
"""Ranks cited per cohort: they behaved the same."""


def cite_divergence(divergence: Divergence, incident: Incident) -> tuple[Evidence, ...]:
    """What each cohort recorded at the divergence."""
    cited: list[Evidence] = []
    for cohort in divergence.cohorts:
        cited += [e for rank in cohort.ranks[:PER_COHORT] if (e := _cite_rank(rank, cohort, divergence, incident))]
    return tuple(cited)


def cite_event(event: LogEvent) -> Evidence:
    return Evidence(event.file, event.rank, f"line {event.line}", event.text)


def cite_stack(stack: LiveStack) -> Evidence:
    return Evidence(stack.file, stack.rank, f"line {stack.line}", f"its main thread was {describe_stack(stack.stack)}")


def live_stack(rank: int, incident: Incident) -> LiveStack | None:
    return next((s for s in incident.capture.stacks if s.rank == rank), None)


def events_of(rank: int, incident: Incident, *kinds: LogKind) -> list[LogEvent]:
    return [e for e in incident.capture.events if e.rank == rank and e.kind in kinds]


def has_log(rank: int, incident: Incident) -> bool:
    """There is a log of its own, or lines of it in a common one."""
    return any(r == rank for _, r in incident.capture.logs) or any(e.rank == rank for e in incident.capture.events)


def user_frame(stack: Stack | None) -> str | None:
    """The innermost frame that is not the library's."""
    frame = next((f for f in stack or () if not is_library(f.filename)), None)
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.line} {frame.name}" if frame else None


def user_frames(stack: Stack | None) -> tuple[tuple[str, int], ...]:
    return tuple((f.filename, f.line) for f in stack or () if not is_library(f.filename))


def is_library(filename: str) -> bool:
    return any(part in filename for part in ("site-packages/", "dist-packages/", "<frozen", "/lib/python3"))


def describe_stack(stack: Stack) -> str:
    place = user_frame(stack)
    inner = stack[0]
    where = f"in {inner.name} ({inner.filename.rsplit('/', 1)[-1]}:{inner.line})"
    return f"{where}, called from {place}" if place and is_library(inner.filename) else where


def list_ranks(ranks: tuple[int, ...]) -> str:
    """`rank 3`, `ranks 0-2 and 5`, `ranks 0-6, 9 and 12`."""
    if not ranks:
        return "no rank"
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    if len(parts) > 8:
        parts = [*parts[:7], f"{len(ranks)} in all"]
    text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"


def describe_slot(divergence: Divergence) -> str:
    if divergence.channel:
        return f"message {divergence.seq} of {divergence.channel[0]}->{divergence.channel[1]} in {divergence.group}"
    return f"{divergence.group} seq {divergence.seq}"


def _cite_rank(rank: int, cohort: Cohort, divergence: Divergence, incident: Incident) -> Evidence | None:
    trace = incident.timeline.traces.get(rank)
    if trace is None:
        return None
    op = _op_of(rank, divergence, incident)
    if op is None or cohort.role in (Role.BEHIND, Role.ELSEWHERE, Role.SILENT):
        return Evidence(trace.file, rank, "last entries", f"rank {rank} {cohort.where or 'has no op here'}")
    place = user_frame(op.stack)
    says = f"{op.signatures[0].op} {list(map(list, op.signatures[0].input_sizes))} seq {op.seq}: {op.state}"
    return Evidence(trace.file, rank, f"entry {op.record_id}", f"{says}, from {place}" if place else says)


def _op_of(rank: int, divergence: Divergence, incident: Incident) -> Op | None:
    seq = divergence.first_visible_seq
    track = track_of(rank, divergence, incident)
    return frontier_op(track, seq) if track and seq is not None else None


def track_of(rank: int, divergence: Divergence, incident: Incident) -> Track | None:
    if divergence.channel is not None:
        channel = next(
            c
            for c in incident.timeline.channels
            if c.group == divergence.group and (c.source, c.destination) == divergence.channel
        )
        return {channel.source: channel.sent, channel.destination: channel.received}.get(rank)
    return group_of(divergence, incident).track(rank)


def group_of(divergence: Divergence, incident: Incident) -> GroupTimeline:
    return next(g for g in incident.timeline.groups if g.group == divergence.group)
