"""Evidence for findings: facts that a reader can look up, how sure a finding is, and which evidence would decide."""

import shlex
from collections.abc import Collection

from forkpoint.diverge.cohorts import frontier_op
from forkpoint.evidence.machine.places import place_of_bus
from forkpoint.judge.facts.symptom import is_pending, without_dumps
from forkpoint.model.capture import OF_ANOTHER_RUN, UNNAMED_THREAD, LiveStack, Remark
from forkpoint.model.frames import is_user_code, short_name, user_place, without_runtime
from forkpoint.model.incident import Cohort, Divergence, Incident, Role
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Op, Stack
from forkpoint.model.timeline import GroupTimeline
from forkpoint.model.trace import Track
from forkpoint.model.verdict import Action, Cause, Evidence, Finding
from forkpoint.model.world import ProcessGroup, name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# How sure a finding is, in four steps: a finer number would be invented.

DECIDED = 0.95
"""Two independent kinds of evidence agree."""
STRONG = 0.85
"""Recorded facts show it directly, and nothing contradicts it."""
LIKELY = 0.7
"""The most likely reading of the facts; another one is possible."""
HEALTHY = 0.9
"""Everything examined is fine; what was not recorded stays unknown."""
WEAK = 0.5
"""What is left after the rest is ruled out."""


# ---------------------------------------------------------------------------------------------------------------------
# Evidence for findings: facts from the incident that a reader can look up.

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
    named = stack.thread if stack.thread == UNNAMED_THREAD else f"thread {stack.thread}"
    waits = f"waited, while {named} was" if stack.thread else "was"
    return Evidence(
        stack.file, stack.rank, f"line {stack.line}", f"its main thread {waits} {describe_stack(stack.stack)}"
    )


def cite_remarks(ranks: tuple[int, ...], incident: Incident) -> tuple[Evidence, ...]:
    """What machines reported about the GPUs on which these ranks ran."""
    cited: list[Evidence] = []
    for remark in incident.capture.remarks:
        place = place_of_bus(incident.capture.places, remark.host, remark.bus_id)
        if place is not None and place.rank in ranks:
            cited.append(cite_remark(remark, place.rank))
    return tuple(cited)


def cite_remark(remark: Remark, rank: int | None) -> Evidence:
    says = f"{remark.host}: {remark.says}" if remark.host else remark.says
    return Evidence(remark.file, rank, f"line {remark.line}", says)


def verb(ranks: Collection[int], one: str, many: str) -> str:
    """The verb form that agrees with `name_ranks(ranks)`."""
    return one if len(ranks) == 1 else many


def live_stack(rank: int, incident: Incident) -> LiveStack | None:
    return next((s for s in incident.capture.stacks if s.rank == rank), None)


def events_of(rank: int, incident: Incident, *kinds: LogKind) -> list[LogEvent]:
    return [e for e in incident.said.get(rank, ()) if e.kind in kinds]


def has_log(rank: int, incident: Incident) -> bool:
    return rank in incident.heard


def describe_stack(stack: Stack) -> str:
    inner = without_runtime(stack)[0]
    where = f"in {inner.name} ({short_name(inner.filename)}:{inner.line})" if inner.filename else f"in {inner.name}"
    place = user_place(stack)
    return where if is_user_code(inner) or not place else f"{where}, called from {place}"


def describe_slot(divergence: Divergence) -> str:
    if divergence.channel:
        which = "a message" if divergence.seq is None else f"message {divergence.seq}"
        return f"{which} of {divergence.channel[0]}->{divergence.channel[1]} in {divergence.group}"
    return f"{divergence.group} seq {divergence.seq}"


def _cite_rank(rank: int, cohort: Cohort, divergence: Divergence, incident: Incident) -> Evidence | None:
    trace = incident.timeline.traces.get(rank)
    if trace is None:
        return None
    op = _op_of(rank, divergence, incident)
    if op is None and cohort.op is not None:  # not one of the ops that are kept in full
        done = f"{cohort.op} seq {divergence.first_visible_seq}: {cohort.state or 'issued'}"
        return Evidence(trace.file, rank, "entries", done)
    if op is None or cohort.role in (Role.BEHIND, Role.ELSEWHERE, Role.SILENT):
        colon = ":" if cohort.role is Role.SILENT else ""
        place = "last entries" if trace.entries else "pg_status" if trace.has_counters else "no entries"
        return Evidence(trace.file, rank, place, f"rank {rank}{colon} {cohort.where or 'has no op here'}")
    place = user_place(op.stack)
    says = f"{op.signatures[0].op} {list(map(list, op.signatures[0].input_sizes))} seq {op.seq}: {op.state}"
    return Evidence(trace.file, rank, f"entry {op.record_id}", f"{says}, from {place}" if place else says)


def _op_of(rank: int, divergence: Divergence, incident: Incident) -> Op | None:
    seq = divergence.first_visible_seq
    track = track_of(rank, divergence, incident) if seq is not None else None
    return frontier_op(track, seq) if track and seq is not None else None


def track_of(rank: int, divergence: Divergence, incident: Incident) -> Track | None:
    if divergence.channel is not None:
        return incident.timeline.of_channel(divergence.group, divergence.channel).end(rank)
    return group_of(divergence, incident).track(rank)


def names_group(event: LogEvent, group: ProcessGroup) -> bool:
    """The line names this group, or no group."""
    return event.group is None or event.group.desc in (None, "", group.desc) or event.group.name == group.name


def group_of(divergence: Divergence, incident: Incident) -> GroupTimeline:
    return incident.timeline.of_group(divergence.group)


# ---------------------------------------------------------------------------------------------------------------------
# Findings without a cause, and the evidence that would decide one.

_FETCHED = 4


def inconclusive(  # noqa: PLR0913 - the fields of a finding that differ
    summary: str,
    evidence: tuple[Evidence, ...],
    wanted: tuple[str, ...],
    *,
    suspects: tuple[int, ...] = (),
    action: Action = Action.INVESTIGATE,
    divergence: Divergence | None = None,
    headlines: tuple[str, ...] = (),
) -> Finding:
    """A finding without a cause. `headlines`: what is seen; the best reading and what would decide are added to it."""
    return Finding(
        detector="undecided",
        cause=Cause.INCONCLUSIVE,
        suspects=suspects,
        confidence=0.0,
        summary=summary,
        action=action,
        evidence=evidence,
        divergence=divergence,
        next=wanted,
        headlines=headlines,
    )


def what_would_decide(incident: Incident) -> tuple[str, ...]:
    """Commands with this job's ranks filled in."""
    absent = without_dumps(incident)
    wanted = [*fetch_written(incident)]
    if absent and not wanted:
        wanted.append(
            f"the dumps of {name_ranks(absent)} (beside the others: forkpoint diagnose DIR), or the end of their logs"
        )
    if not incident.capture.logs:
        wanted.append("the logs of all ranks: forkpoint diagnose DUMPS LOGS")
    if is_pending(incident) and not incident.capture.stacks:
        wanted.append("py-spy dump --pid PID on every rank while it hangs")
    return tuple(wanted) or ("py-spy dump --pid PID on every rank, twice, ten seconds apart, while it hangs",)


def diagnose_others(incident: Incident) -> tuple[str, ...]:
    """If dumps of other runs were given in folders of their own: the command for each."""
    aside = incident.capture.set_aside
    judged = {trace.file.rpartition("/")[0] for trace in incident.timeline.traces.values()} if aside else set[str]()
    others = {
        one.file.rpartition("/")[0] for one in aside if one.rank is not None and one.why.startswith(OF_ANOTHER_RUN)
    }
    apart = sorted(others - judged - {""})
    more = f", and {len(apart) - 1} other folders with dumps of other runs" if len(apart) > 1 else ""
    return (f"forkpoint diagnose {shlex.quote(apart[0])}: another run{more}",) if apart else ()


def fetch_written(incident: Incident) -> tuple[str, ...]:
    """If logs mention dump files that were not given: the step to fetch them."""
    absent = without_dumps(incident)
    told = {e.rank: path for e in incident.capture.events if e.kind is LogKind.DUMPED and (path := e.detail("path"))}
    written = [f"{path.rstrip('.')} (rank {rank})" for rank, path in sorted(told.items()) if rank in absent]
    more = f" and {len(written) - _FETCHED} more" if len(written) > _FETCHED else ""
    return (
        (f"fetch {', '.join(written[:_FETCHED])}{more}: the logs say that these dumps were written",) if written else ()
    )
