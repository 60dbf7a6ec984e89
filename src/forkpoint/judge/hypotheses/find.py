"""Findings and readings -> Hypotheses, each tested by replay, the smallest repair first."""

from collections.abc import Iterable
from dataclasses import replace

from forkpoint.judge.facts.cite import describe_slot, verb
from forkpoint.judge.hypotheses.logs import read_words_and_stacks
from forkpoint.judge.hypotheses.recorded import read_calls
from forkpoint.judge.hypotheses.repairs import find_replay, may_be, recorded_job
from forkpoint.model.incident import Divergence, Incident, PartingKind
from forkpoint.model.verdict import Cause, Finding, Hypothesis, Likelihood
from forkpoint.model.world import name_ranks
from forkpoint.replay import Job, Repair, RepairKind, Replay
from forkpoint.replay.job import tell_slots

MAX_HYPOTHESES = 6
_MAX_STEPS = 8
_UNDECIDED = (Cause.HEALTHY, Cause.INCONCLUSIVE)


def find_hypotheses(incident: Incident, findings: Iterable[Finding]) -> tuple[Hypothesis, ...]:
    """What detectors found first, then the readings that survive. Empty for a healthy job."""
    readings = _readings(incident, findings)
    tested = [shown for hypothesis in readings if (shown := _test(hypothesis, incident))]
    return tuple(
        replace(hypothesis, likelihood=Likelihood.LIKELY if place == 0 else Likelihood.POSSIBLE)
        for place, hypothesis in enumerate(tested[:MAX_HYPOTHESES])
    )


def find_refused(incident: Incident, findings: Iterable[Finding]) -> tuple[Hypothesis, ...]:
    """Readings that replay refutes, for those who ask what was tried."""
    return tuple(one for one in _readings(incident, findings) if _test(one, incident) is None)


def _readings(incident: Incident, findings: Iterable[Finding]) -> list[Hypothesis]:
    """Findings and readings without repetitions, as the first one words them."""
    claims = [_of_finding(finding) for finding in findings if finding.cause not in _UNDECIDED]
    first_of_each: dict[object, Hypothesis] = {}
    for reading in (*claims, *read_calls(incident), *read_words_and_stacks(incident)):
        first_of_each.setdefault((reading.cause, reading.suspects, reading.sides), reading)
    return list(first_of_each.values())


def _of_finding(finding: Finding) -> Hypothesis:
    return Hypothesis(
        finding.cause,
        finding.suspects,
        finding.summary,
        next(iter(finding.next), next((probe.title for probe in finding.probes), "")),
        supports=finding.evidence,
        divergence=finding.divergence,
    )


def _test(hypothesis: Hypothesis, incident: Incident) -> Hypothesis | None:
    """The hypothesis with its repair and the steps of its replay; None if replay refutes it on every side."""
    fork = hypothesis.divergence
    if fork is not None and fork.how is PartingKind.METADATA and not may_be(hypothesis.cause, (), fork, incident):
        return None
    tried = hypothesis.sides or (hypothesis.suspects,)
    found = [find_replay(hypothesis.cause, ranks, hypothesis.divergence, incident) for ranks in tried]
    if all(one is None for one in found):
        return hypothesis
    explaining = [(ranks, one) for ranks, one in zip(tried, found, strict=True) if one and one[1].explains]
    if not explaining:
        return None
    repair, shown = explaining[0][1]
    job = recorded_job(incident)
    sides = tuple(ranks for ranks, _ in explaining) if hypothesis.sides else ()
    told = _tell(repair, job, hypothesis.divergence, sides, len(incident.timeline.world))
    return replace(hypothesis, sides=sides, repair=told, steps=_steps(repair, shown, hypothesis.divergence))


def _tell(
    repair: Repair, job: Job, divergence: Divergence | None, sides: tuple[tuple[int, ...], ...], world: int
) -> str:
    """`had rank 4 issued default_pg seq 9, all 8 ranks would have gone on`."""
    waiting = frozenset(rank for slot in job.slots for rank in slot.waiting)
    either = " or ".join(name_ranks(side) for side in sides[:3]) if len(sides) > 1 else None
    subject, done = _change(repair, divergence)
    everyone = f"all {world} ranks" if len(waiting | repair.ranks) == world else name_ranks(waiting)
    return f"had {either or subject} {done}, {everyone} would have gone on"


def _change(repair: Repair, divergence: Divergence | None) -> tuple[str, str]:
    """Which ranks, and what they would have done differently."""
    slot = describe_slot(divergence) if divergence else "the call in which the others wait"
    if repair.kind is RepairKind.FINISH:
        return slot, "finished"
    skipped = divergence is not None and divergence.shift is not None and divergence.shift.by > 0
    done = {
        RepairKind.GO_ON: "gone on",
        # After a skipped call, the rank has issued another one under the same number.
        RepairKind.ISSUE: f"not skipped {slot}" if skipped else f"issued {slot}",
        RepairKind.LEAVE_OUT: f"left out {verb(repair.ranks, 'its', 'their')} call at {slot}",
        RepairKind.FIT: f"made the same call at {slot}",
        RepairKind.ORDER: "kept to one order of calls",
    }[repair.kind]
    return name_ranks(repair.ranks) if repair.ranks else "all ranks", done


def _steps(repair: Repair, shown: Replay, divergence: Divergence | None) -> tuple[str, ...]:
    subject, done = _change(repair, divergence)
    rounds = [f"then {tell_slots(slots)} {'finishes' if len(slots) == 1 else 'finish'}" for slots in shown.rounds]
    more = [f"and {len(rounds) - _MAX_STEPS} more rounds"] if len(rounds) > _MAX_STEPS else []
    return (f"suppose {subject} had {done}", *rounds[:_MAX_STEPS], *more)
