"""What the user saw, and how much of the job the evidence shows."""

from collections import Counter

from forkpoint.model.incident import Divergence, Incident, PartingKind, fact
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import SYNCHRONISING, OpState
from forkpoint.model.verdict import Coverage, Symptom
from forkpoint.model.world import name_ranks
from forkpoint.traces.admission import CLOCKS_APART_NS

# ---------------------------------------------------------------------------------------------------------------------
# What the user saw: from logs, and from ops that never finished.

_NO_ERRORS = (LogKind.WATCHDOG_TIMEOUT, LogKind.GIL_HELD)


@fact
def find_symptom(incident: Incident) -> Symptom | None:
    """None if the evidence does not show it (dumps alone do not show what was printed)."""
    kinds = {e.kind for e in incident.capture.events}
    died_of_timeout = any(e.kind is LogKind.WATCHDOG_DIED and e.work for e in incident.capture.events)
    if LogKind.WATCHDOG_TIMEOUT in kinds or died_of_timeout:
        return Symptom.WATCHDOG_TIMEOUT
    if any(e.is_failure and e.kind not in _NO_ERRORS for e in incident.capture.events):
        return Symptom.ERROR
    divergence = incident.divergence
    if divergence is not None and is_finishing(divergence):
        return Symptom.NONE
    if is_pending(incident) or (incident.capture.stacks and not has_ops(incident)):
        return Symptom.SILENT_HANG if _must_hang(incident) else None
    if divergence is not None:
        return Symptom.NO_HANG
    return Symptom.NONE if incident.timeline.traces else None


def only_values_tell(incident: Incident) -> bool:
    """Values were recorded, and any failure or hang of the job is explained by them."""
    failed = any(e.is_failure for e in incident.capture.events)
    return bool(incident.capture.values) and not (failed or incident.divergence or is_pending(incident))


def is_pending(incident: Incident) -> bool:
    return bool(incident.timeline.stands)


def _must_hang(incident: Incident) -> bool:
    """An op outlived its timeout, ranks cannot continue by themselves, or none ever started."""
    divergence = incident.divergence
    deadlock = divergence is not None and divergence.how in (
        PartingKind.CYCLE,
        PartingKind.METADATA,
        PartingKind.MESSAGE,
    )
    return incident.outlived_timeout or _stood_still(incident) or deadlock or not has_ops(incident)


@fact
def has_ops(incident: Incident) -> bool:
    return any(t.entries for t in incident.timeline.traces.values())


@fact
def hang_is_shown(incident: Incident) -> bool:
    """Evidence that pending ops hang and were not just caught in flight.

    NCCL writes dumps when something went wrong, so its dumps alone count; gloo's are only ever taken on demand. Logs
    that report nothing wrong count against it, unless an op is older than its timeout.
    """
    symptom = find_symptom(incident)
    if symptom in (Symptom.WATCHDOG_TIMEOUT, Symptom.ERROR) or incident.outlived_timeout or _stood_still(incident):
        return True
    by_nccl = any(t.comm_lib.startswith("nccl") for t in incident.timeline.traces.values())
    return by_nccl and not incident.capture.logs


@fact
def _stood_still(incident: Incident) -> bool:
    """Someone looked more than once while the job ran, or a debugger asks for a command."""
    return any(e.kind in (LogKind.STOOD_STILL, LogKind.DEBUGGER) for e in incident.capture.events)


@fact
def stands_still(incident: Incident) -> bool:
    """Every main thread waits for another thread, or was seen twice at the same place, or a watch saw nothing move."""
    held = {s.rank for s in incident.capture.stacks if s.thread or s.seen > 1}
    return _stood_still(incident) or (bool(held) and held >= set(incident.timeline.world))


@fact
def launcher_stops(incident: Incident) -> tuple[LogEvent, ...]:
    """A launcher's lines that it was itself told to stop."""
    return tuple(e for e in incident.capture.events if e.pattern == "agent-stopped")


@fact
def say_done(incident: Incident) -> frozenset[int]:
    """Ranks that say at the end of a log, their own or a shared one, that they finished."""
    ends = incident.capture.log_ends
    logs = [(ends[file], rank) for file, rank in incident.capture.logs if file in ends and rank is not None]
    own = {rank for end, rank in logs if end.done is not None}
    return frozenset(own | {rank for end in ends.values() for rank in end.done_by})


def all_said_done(incident: Incident) -> bool:
    """Each rank by a line of its own: what was seen of ranks while they ran, such as their stacks, is of an earlier moment."""
    ends, logs = incident.capture.log_ends, incident.capture.logs
    shared = {file for file, count in Counter(file for file, _ in logs).items() if count > 1}
    alone = {rank for file, rank in logs if file in ends and file not in shared and ends[file].done is not None}
    done = alone | {rank for end in ends.values() for rank in end.done_by}
    return bool(done) and done >= set(incident.timeline.world) and incident.timeline.unseen <= 1


@fact
def moved_on(incident: Incident) -> frozenset[int]:
    """Ranks that made more calls after their dumps were taken, as their peers' later dumps show."""
    timeline = incident.timeline
    return frozenset(r for r in timeline.blind if not (timeline.traces[r].cut or timeline.traces[r].is_partial))


@fact
def was_moving(incident: Incident) -> bool:
    """Most dumps were taken before others, of a job that kept running meanwhile; or each rank with two dumps moved
    between them.
    """
    behind = {one.rank: one.behind for one in incident.capture.set_aside if one.rank in incident.timeline.traces}
    between = len(behind) > 1 and all(count > 0 for count in behind.values())
    moved = moved_on(incident)
    return 2 * len(moved) > len(incident.timeline.traces) and (
        between or 4 * len(moved) >= 3 * len(incident.timeline.traces)
    )


def is_finishing(divergence: Divergence) -> bool:
    """Some members are done with a slot that no rank can finish alone: all have issued it, so it was caught in flight."""
    waiting = divergence.how in (PartingKind.STUCK, PartingKind.ABSENCE) and divergence.channel is None
    return waiting and any(c.state is OpState.COMPLETED and c.op in SYNCHRONISING for c in divergence.cohorts)


# ---------------------------------------------------------------------------------------------------------------------
# How much of the job the evidence shows.

MAX_REMARKS = 5


def summarise_coverage(incident: Incident) -> Coverage:
    capture = incident.capture
    return Coverage(
        ranks=len(incident.timeline.world),
        dumps=len(capture.traces),
        logs=len(capture.logs),
        stacks=len(capture.stacks),
        notes=(
            *_unstated(incident),
            *_missing(incident),
            *_values(incident),
            *_blind(incident),
            *_stackless(incident),
            *_empty(incident),
            *_places(incident),
            *_remarks(incident),
            *_problems(incident),
        ),
        set_aside=capture.set_aside,
    )


@fact
def recorder_was_off(incident: Incident) -> bool:
    """No dump has entries or the counters that only an active recorder keeps, although ranks had called something."""
    return dumps_are_empty(incident) and has_called(incident)


def dumps_are_empty(incident: Incident) -> bool:
    """There are dumps, and none has entries or counters."""
    traces = incident.timeline.traces
    return bool(traces) and not any(t.entries or t.has_counters for t in traces.values())


def has_called(incident: Incident) -> bool:
    """A log shows that ranks communicated. A stack does not: the first call of a group is recorded only when its
    communicator exists.
    """
    return any(e.work or e.kind is LogKind.RECORDER_OFF or e.is_failure for e in incident.capture.events)


def knows_nothing(incident: Incident) -> bool:
    """What was given was read, and none of it is evidence of a training job."""
    capture = incident.capture
    told = any(event.kind is not LogKind.NOTICE for event in capture.events)
    shown = told or capture.stacks or capture.nameless_stacks or capture.remarks or capture.values.ranks
    return not (shown or capture.steps or incident.timeline.traces or incident.timeline.world)


@fact
def without_dumps(incident: Incident) -> tuple[int, ...]:
    """Ranks for which no dump was given. One that was set aside was given."""
    given = {one.rank for one in incident.capture.set_aside} | incident.timeline.traces.keys()
    return tuple(r for r in incident.timeline.world if r not in given)


def _unstated(incident: Incident) -> list[str]:
    if incident.timeline.world_known:
        return []
    return [f"the size of the job is not stated: at least {len(incident.timeline.world)} ranks"]


def _missing(incident: Incident) -> list[str]:
    absent = without_dumps(incident)
    return [f"no dump of {name_ranks(absent)}"] if absent and incident.timeline.traces else []


def _values(incident: Incident) -> list[str]:
    heard = incident.capture.values.ranks
    silent = tuple(rank for rank in incident.timeline.world if rank not in heard)
    left_none = f", none of {name_ranks(silent)}" if silent else ""
    return [f"recorded values of {name_ranks(heard)}{left_none}"] if heard else []


def _blind(incident: Incident) -> list[str]:
    traces = incident.timeline.traces
    hidden = sorted(r for r in incident.timeline.blind if not traces[r].cut and traces[r].entries)
    whole = [r for r in hidden if not traces[r].is_partial]
    newest = max((t.last_ns for r, t in traces.items() if r not in hidden), default=0)
    later = [r for r in whole if newest and traces[r].last_ns > newest + CLOCKS_APART_NS]
    kinds = (
        ([r for r in whole if r not in later], "dumped before their peers"),
        (later, "dumped at an earlier call than their peers, though later by the clock (another run?)"),
        ([r for r in hidden if traces[r].is_partial], "dumped without finished ops"),
    )
    return [f"{how}, so that their position is not known: {name_ranks(ranks)}" for ranks, how in kinds if ranks]


def _stackless(incident: Incident) -> list[str]:
    traces = incident.timeline.traces
    bare = tuple(sorted(r for r, t in traces.items() if t.entries and not t.has_stacks))
    return [f"no stacks in the dump of {name_ranks(bare)}"] if bare else []


def _empty(incident: Incident) -> list[str]:
    """The meaning of an empty dump depends on what else it holds: only an active recorder keeps counters."""
    traces = incident.timeline.traces
    empty = [(r, t) for r, t in sorted(traces.items()) if not t.entries]
    counted = tuple(r for r, t in empty if t.has_counters)
    others = tuple(r for r, t in empty if not t.has_counters)
    why = (
        "the recorder was off there"
        if recorder_was_off(incident)
        else "nothing had been recorded yet, or the recorder was off"
    )
    said = [(counted, "its counters show how far it got"), (others, why)]
    return [f"no entries in the dump of {name_ranks(ranks)}: {what}" for ranks, what in said if ranks]


def _problems(incident: Incident) -> list[str]:
    return [f"{p.file}: {p.text}" for p in incident.capture.problems]


def _places(incident: Incident) -> list[str]:
    """The places of the ranks that differ: a person looks for the machine."""
    odd = set(incident.divergence.odd) if incident.divergence else set[int]()
    told = [
        f"rank {p.rank} ran on {p.host}{'' if p.gpu is None else f' GPU {p.gpu}'}"
        for p in incident.capture.places
        if p.rank in odd
    ]
    return [", ".join(told[:8])] if told else []


def _remarks(incident: Incident) -> list[str]:
    remarks = incident.capture.remarks
    told = [f"{r.host or r.file}: {r.says}" for r in remarks[:MAX_REMARKS]]
    return (
        [*told, f"and {len(remarks) - MAX_REMARKS} more messages of machines"] if len(remarks) > MAX_REMARKS else told
    )
