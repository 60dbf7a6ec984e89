"""Nothing went wrong: all ranks agree and none waits, or the job ended normally, or every recorded value was in line."""

import re
from collections.abc import Iterator
from itertools import pairwise

from forkpoint.judge.facts.cite import HEALTHY, LIKELY
from forkpoint.judge.facts.contrast import find_printed
from forkpoint.judge.facts.late_ranks import moment_of
from forkpoint.judge.facts.printed_state import find_odd_restored, find_parted_replicas
from forkpoint.judge.facts.printed_values import hashes_part, own_logs
from forkpoint.judge.facts.stacks import find_standings, is_communicating
from forkpoint.judge.facts.symptom import (
    all_said_done,
    is_finishing,
    launcher_stops,
    moved_on,
    only_values_tell,
    say_done,
    stands_still,
)
from forkpoint.judge.facts.values import find_first_out_of_line
from forkpoint.model.incident import Incident, PartingKind
from forkpoint.model.log import LogEvent, LogKind, PrintedLine
from forkpoint.model.values import Values
from forkpoint.model.verdict import Action, Cause, Evidence, Finding

_STEP = re.compile(r"\b(?:global_)?(?:step|iter|iteration)[ :=#]{1,2}(\d{1,9})\b", re.IGNORECASE)
_FEW = 7
"""Number of dumps of which a three-quarters share is not chance: in a job that hangs, all are taken at the same calls."""
_BY_A_PERSON = "KeyboardInterrupt"
_STOPPED = "the launcher was told to stop while the job was printing, and no log reports a failure before that"
_ENOUGH_LINES = 10
"""With times, to know how long the program is silent at most while it runs."""
_DAY = 86_400
_TOLD_TO_STOP = re.compile(
    r"\b(?:received|caught|got|handling)\b.{0,20}\b(?:SIGTERM|SIGINT|signal (?:15|2))\b", re.IGNORECASE
)


def find(incident: Incident) -> Iterator[Finding]:
    if _dumps_agree(incident):
        count = len(incident.timeline.traces)
        yield _finding(f"all {count} ranks agree on every call that their dumps hold, and none is waiting")
    elif told := _well_by_logs(incident):
        yield _finding(told, confidence=LIKELY)
    elif only_values_tell(incident) and not incident.timeline.traces:
        yield from _well_by_values(incident.capture.values)


def _finding(
    summary: str, evidence: tuple[Evidence, ...] = (), *, detector: str = "healthy", confidence: float = HEALTHY
) -> Finding:
    told = f"no fault found: {summary}"
    return Finding(detector, Cause.HEALTHY, (), confidence, summary, Action.NONE, evidence, headlines=(told, summary))


def _dumps_agree(incident: Incident) -> bool:
    """Every rank's dump is there and complete, all agree, nothing is pending, and no log reports a failure or another
    checkpoint than the others'.

    gloo drops a failed op from its list as if it had finished, so with gloo every rank's log must be there too.
    """
    timeline = incident.timeline
    traces = timeline.traces.values()
    whole = (
        timeline.world_known
        and set(timeline.world) == set(timeline.traces)
        and all(t.entries and not t.cut for t in traces)
    )
    failed_unseen = any(t.comm_lib == "gloo" for t in traces) and not incident.heard >= set(timeline.world)
    silent = not failed_unseen and not _find_failures(incident) and not stands_still(incident)
    silent = silent and not _waits_unrecorded(incident) and not find_odd_restored(incident)
    agreed = all(is_finishing(d) for d in incident.divergences)
    return bool(traces) and whole and silent and agreed


def _waits_unrecorded(incident: Incident) -> bool:
    """A rank's stack is in a communication call that its dump does not hold, such as gloo's send and recv: nothing
    shows whether that call ever ended.
    """
    pending = incident.timeline.stands
    return any(is_communicating(s.stack) and s.rank not in pending for s in incident.capture.stacks)


def _well_by_logs(incident: Incident) -> str | None:
    """Evidence from logs alone that the job did not fail; None if they do not show it."""
    wrong = find_odd_restored(incident) or hashes_part(incident) or find_parted_replicas(incident)
    if _find_failures(incident) or stands_still(incident) or wrong:
        return None
    if not incident.timeline.traces:
        return _ended_or_stopped(incident)
    in_flight = all(d.how in (PartingKind.ABSENCE, PartingKind.STUCK) for d in incident.divergences)
    if not in_flight or incident.outlived_timeout:
        return None
    return _ran_on(incident) or (_STOPPED if _was_stopped_while_it_printed(incident) else None)


def _ran_on(incident: Incident) -> str | None:
    """The job continued after its dumps were taken, according to its logs, or while they were taken one after another."""
    timeline, world = incident.timeline, set(incident.timeline.world)
    if say_done(incident) >= world:
        return "every rank logged that it was done; the dumps were taken while the job ran"
    early = moved_on(incident)
    all_but_last = timeline.world_known and len(early) >= len(world) - 1  # has nothing to compare with
    most = len(timeline.traces) > _FEW and 4 * len(early) >= 3 * len(timeline.traces) and bool(incident.capture.logs)
    if len(world) < 3 or not (all_but_last or most):
        return None
    behind = {one.rank: one.behind for one in incident.capture.set_aside if one.behind > 0}
    between = f", and each rank {min(behind.values())} or more between its two dumps" if behind.keys() >= world else ""
    told = f"{len(early)} of {len(world)} ranks made more calls after their dumps were taken, as later dumps show"
    return f"{told}{between}; no log reports a failure"


def _ended_or_stopped(incident: Incident) -> str | None:
    by_a_person = any(e.exception == _BY_A_PERSON for e in incident.capture.events)
    if _all_ended_in_order(incident):
        how = "a person interrupted the job" if by_a_person else "the job ended in order"
        return f"{how}, and no log reports a failure {'before' if by_a_person else 'after'} that"
    if _was_stopped_while_it_printed(incident):
        return _STOPPED
    if _were_all_told_to_stop(incident):
        return "every rank was told to stop by a signal and did, and no log reports a failure before that"
    if _all_were_interrupted(incident):
        stood = "every rank was at the same place, and no log reports a failure before that"
        return f"a person interrupted the job: {stood}"
    return None


def _well_by_values(values: Values) -> Iterator[Finding]:
    """Only if every rank's records are complete and something was compared."""
    cut = any(log.cut for log in (*values.forensics, *values.replicas))
    whole = not cut and values.world is not None and values.ranks == frozenset(range(values.world))
    equal = [(step, line, log) for log in values.replicas for step, line in log.equal]
    if not whole or (values.replicas and not equal) or find_first_out_of_line(values) is not None:
        return
    cited: list[Evidence] = []
    said: list[str] = []
    if equal:
        step, line, log = max(equal, key=lambda item: (item[0], -item[2].rank))
        cited.append(Evidence(log.file, log.rank, f"line {line}", f"step {step}: all replicas were equal"))
        said.append(f"replicas were equal at every check up to step {step}")
    if values.forensics:
        first, last = values.forensics[0], values.forensics[0].steps[-1:]
        cited += [Evidence(first.file, first.rank, f"line {s.line}", f"step {s.step}: in line") for s in last]
        said.append("no loss or gradient was abnormal before reduction in the steps that are kept")
    yield _finding("; ".join(said), tuple(cited), detector="values")


def _find_failures(incident: Incident) -> tuple[LogEvent, ...]:
    """Reported failures, except those after an interruption and those after which the log says that everything
    finished.
    """
    interrupted = _interrupted(incident)
    ends = incident.capture.log_ends
    return tuple(
        e
        for e in incident.capture.events
        if e.is_failure
        and not (e.file in interrupted and e.line >= interrupted[e.file])
        and not (e.file in ends and (done := ends[e.file].done) is not None and e.line < done)
    )


def _all_were_interrupted(incident: Incident) -> bool:
    """A person stopped every rank, all at the same place: no rank waited for another."""
    ranks = {e.rank for e in incident.capture.events if e.exception == _BY_A_PERSON}
    world = set(incident.timeline.world)
    places = {one.place for rank, one in find_standings(incident).items() if rank in world}
    return len(world) > 1 and ranks >= world and len(places) == 1


def _was_stopped_while_it_printed(incident: Incident) -> bool:
    """A signal came to the launcher no longer after the program's last line than the program had been silent before: somebody who
    stops a job that hangs has waited longer. The times are those of one log.
    """
    stops = {e.file: e for e in reversed(launcher_stops(incident)) if e.time}
    return any(_printed_until(event, incident.capture.printed.get(file, ())) for file, event in stops.items())


def _printed_until(stop: LogEvent, lines: tuple[PrintedLine, ...]) -> bool:
    end = moment_of(PrintedLine(stop.line, None, stop.text, stop.time))
    times = [one.second % _DAY for line in lines if line.line < stop.line and (one := moment_of(line))]
    if end is None or len(times) < _ENOUGH_LINES:
        return False
    pauses = sorted(later - one for one, later in pairwise(times))
    return 0 <= end.second % _DAY - times[-1] <= max(1, pauses[-2])  # lines in the middle of a long log are not kept


def _were_all_told_to_stop(incident: Incident) -> bool:
    """A rank that is stuck in a call cannot print it."""
    told = {rank for _, rank, line in find_printed(incident) if _TOLD_TO_STOP.search(line.text)}
    return len(told) > 1 and told >= set(incident.timeline.world) and incident.timeline.unseen <= 1


def _all_ended_in_order(incident: Incident) -> bool:
    """The launcher saw the job succeed; or every rank with a log says that it finished, or destroyed its groups; or one
    says that it finished, and all reached the same step.
    """
    if any(e.kind is LogKind.FINISHED for e in incident.capture.events):
        return True
    done = say_done(incident) | {
        e.rank for e in incident.capture.events if e.kind is LogKind.LEFT and e.rank is not None
    }
    world, steps = set(incident.timeline.world), _last_steps(incident)
    seen = bool(incident.capture.stacks) and not all_said_done(incident)
    alive = seen or any(e.kind is LogKind.AGENT_FAILURE for e in incident.capture.events)
    together = bool(done) and len(set(steps.values())) == 1 and steps.keys() == world
    if not world:  # only a console: the ranks that print to it are all ranks that are known
        return len(done) > 1 and done == set(range(len(done))) and not alive
    return len(incident.heard) > 1 and (done >= world or together) and not alive


def _last_steps(incident: Incident) -> dict[int, int]:
    """The last step that each rank printed in its own log."""
    found: dict[int, int] = {}
    for rank, file in own_logs(incident).items():
        steps = [int(said[1]) for line in incident.capture.log_ends[file].lines if (said := _STEP.search(line))]
        if steps:
            found[rank] = steps[-1]
    return found


def _interrupted(incident: Incident) -> dict[str, int]:
    """The first line of each log that reports an interruption: Ctrl-C, a launcher that received it, a scheduler's
    cancel.
    """
    found: dict[str, int] = {}
    for event in incident.capture.events:
        by_launcher = event in launcher_stops(incident) or event.kind is LogKind.CANCELLED
        if event.exception == _BY_A_PERSON or by_launcher:
            found.setdefault(event.file, event.line)
    if _were_all_told_to_stop(incident):
        for file, _, line in find_printed(incident):
            if _TOLD_TO_STOP.search(line.text):
                found[file] = min(line.line, found.get(file, line.line))
    return found
