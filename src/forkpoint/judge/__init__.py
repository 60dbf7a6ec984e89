"""Stage 7: Incident, Findings -> Verdict. Ranks the findings, abstains when the evidence does not decide, and says
which evidence would.
"""

from dataclasses import replace

from forkpoint.coverage import dumps_are_empty, recorder_was_off, summarise_coverage, without_dumps
from forkpoint.detectors.cite import cite_divergence, cite_event, cite_remarks, describe_slot
from forkpoint.detectors.confidence import LIKELY
from forkpoint.detectors.interruptions import all_ended_in_order, all_were_interrupted, find_failures
from forkpoint.detectors.parted_stacks import PartedStacks, find_parted_stacks
from forkpoint.detectors.refusal import find_refusal
from forkpoint.judge.from_logs import fetch_written, speak_from_logs
from forkpoint.judge.from_values import speak_from_values
from forkpoint.judge.known import known_hints
from forkpoint.model.divergence import Divergence, PartingKind
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Action, Cause, Finding, Symptom, Verdict
from forkpoint.moments import find_moments
from forkpoint.recorder_settings import how_to_record
from forkpoint.symptom import find_symptom, has_ops, is_finishing, is_pending, stands_still

HEALTHY = 0.9
"""All ranks agree as far as their dumps go back; what the recorder does not see stays unseen."""


def judge(incident: Incident, findings: tuple[Finding, ...]) -> Verdict:
    ranked = tuple(sorted(findings, key=_weigh))
    verdict = _decide(ranked, incident)
    return replace(verdict, next=(*known_hints(incident), *verdict.next), moments=find_moments(incident))


def _weigh(finding: Finding) -> tuple[bool, float, str]:
    """What ended or hung the job goes before values that were wrong while it ran."""
    return finding.cause is Cause.SILENT_CORRUPTION, -finding.confidence, finding.detector


def _decide(ranked: tuple[Finding, ...], incident: Incident) -> Verdict:
    if ranked:
        return _stand_on(ranked, incident)
    values = speak_from_values(incident)
    if values is not None and values.cause is Cause.INCONCLUSIVE:
        return replace(_inconclusive(incident, values.summary, values.next), findings=(values,))
    if _is_healthy(incident):
        return _healthy(incident)
    if told := _well_by_logs(incident):
        return replace(_healthy(incident), summary=told, confidence=LIKELY)
    return _stand_on((values,), incident) if values is not None else _abstain(incident)


def _stand_on(ranked: tuple[Finding, ...], incident: Incident) -> Verdict:
    cited = dict.fromkeys((*ranked[0].evidence, *cite_remarks(ranked[0].suspects, incident)))
    best = replace(ranked[0], evidence=tuple(cited))
    seen = find_symptom(incident)
    ran_on = best.cause is Cause.SILENT_CORRUPTION and seen in (None, Symptom.NONE)
    return Verdict(
        symptom=Symptom.NO_HANG if ran_on else seen,
        cause=best.cause,
        confidence=best.confidence,
        action=best.action,
        suspects=best.suspects,
        summary=_sentence(best.summary),
        divergence=best.divergence or incident.divergence,
        coverage=summarise_coverage(incident),
        findings=(best, *ranked[1:]),
        next=best.next,
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _is_healthy(incident: Incident) -> bool:
    """Every rank's dump is there and whole, all agree, nothing is pending, and no log tells of a failure.

    gloo takes a failed op off its list like a done one, so with it every rank's log must be there too.
    """
    timeline = incident.timeline
    traces = timeline.traces.values()
    whole = (
        timeline.world_known
        and set(timeline.world) == set(timeline.traces)
        and all(t.entries and not t.cut for t in traces)
    )
    failed_unseen = any(t.comm_lib == "gloo" for t in traces) and not incident.heard >= set(timeline.world)
    silent = not failed_unseen and not find_failures(incident) and not stands_still(incident)
    agreed = all(is_finishing(d) for d in incident.divergences)
    return bool(traces) and whole and silent and agreed


def _well_by_logs(incident: Incident) -> str | None:
    """What logs alone show of a job that did not fail; None: they do not show it."""
    if incident.timeline.traces or find_failures(incident) or stands_still(incident):
        return None
    if all_ended_in_order(incident):
        return "The job ended in order, and no failure is told after that."
    if all_were_interrupted(incident):
        return "A person interrupted the job: every rank was at the same place, and no failure is told before."
    return None


def _healthy(incident: Incident) -> Verdict:
    count = len(incident.timeline.traces)
    return Verdict(
        symptom=find_symptom(incident),
        cause=Cause.HEALTHY,
        confidence=HEALTHY,
        action=Action.NONE,
        suspects=(),
        summary=f"All {count} ranks agree on every operation that their dumps still hold, and none waits for another.",
        divergence=None,
        coverage=summarise_coverage(incident),
    )


def _abstain(incident: Incident) -> Verdict:
    divergence = incident.divergence
    said = speak_from_logs(incident) if divergence is None else None
    if dumps_are_empty(incident) and said is None and not incident.capture.stacks:
        off = "the flight recorder was off"
        why = off if recorder_was_off(incident) else f"nothing had been called yet, or {off}"
        summary = f"the dumps hold no entries: {why}, so they say nothing about this failure"
        return _inconclusive(incident, summary, how_to_record(incident))
    if said is not None:
        verdict = _inconclusive(incident, said.summary, said.wanted)
        cited = tuple(cite_event(event) for event in said.events)
        finding = Finding("undecided", Cause.INCONCLUSIVE, (), 0.0, verdict.summary, Action.INVESTIGATE, cited)
        return replace(verdict, suspects=said.suspects, findings=(finding,))
    refused = [e for e in incident.capture.events if e.kind is LogKind.SIZES_DIFFER]
    if refused and (divergence is None or {e.rank for e in refused} & set(divergence.unknown)):
        return _refused(refused, incident)
    if divergence is None:
        return _nothing_parts(incident)
    if divergence.how is PartingKind.METADATA:
        verdict = _inconclusive(incident, _undecided_call(divergence), _wanted(incident))
        return replace(verdict, suspects=tuple(sorted(divergence.odd)), action=Action.FIX_CODE)
    return _inconclusive(incident, _undecided(divergence, incident), _wanted(incident))


def _nothing_parts(incident: Incident) -> Verdict:
    parted = None if has_ops(incident) else find_parted_stacks(incident)
    if parted is not None:
        return _parted(parted, incident)
    seen = "the dumps that are there agree" if incident.timeline.traces else "no dump was given"
    return _inconclusive(incident, f"{seen}{_missing(incident)}; that does not decide", _wanted(incident))


def _parted(parted: PartedStacks, incident: Incident) -> Verdict:
    summary = (
        f"{name_ranks(parted.odd)} left the path of the others at {parted.place}, and all ranks wait for each other: it took "
        "another branch, or brought another size to a call that the others have finished"
    )
    verdict = _inconclusive(incident, summary, _wanted(incident))
    cited = tuple(parted.standings[rank].evidence for rank in (*parted.odd[:2], *parted.divergence.sides[0][:2]))
    finding = Finding("undecided", Cause.INCONCLUSIVE, parted.odd, 0.0, verdict.summary, Action.FIX_CODE, cited)
    return replace(
        verdict, action=Action.FIX_CODE, suspects=parted.odd, findings=(finding,), divergence=parted.divergence
    )


def _refused(events: list[LogEvent], incident: Incident) -> Verdict:
    """It is the code, but the library that refuses is no more at fault than the peer that sent, unless all others agree."""
    who = name_ranks(tuple(sorted({e.rank for e in events if e.rank is not None}))) or "a rank"
    refusal = find_refusal(incident)
    odd = refusal.divergence.odd if refusal else ()
    which = "all others brought the same" if odd else "nothing shows which of them is at fault"
    summary = (
        f"{who} got data of another size than it waited for, and its library refused it: two ranks brought different "
        f"sizes to one operation, by another path or with another tensor, and {which}"
    )
    verdict = _inconclusive(incident, summary, (*_wanted(incident), *_wanted_of_refusing(events, incident)))
    cited = tuple(cite_event(event) for event in events[:4])
    finding = Finding("undecided", Cause.INCONCLUSIVE, (), 0.0, verdict.summary, Action.FIX_CODE, cited)
    return replace(verdict, action=Action.FIX_CODE, suspects=odd, findings=(finding,))


def _wanted_of_refusing(events: list[LogEvent], incident: Incident) -> tuple[str, ...]:
    """A rank that is aborted can still say where it stood."""
    stood = {s.rank for s in incident.capture.stacks}
    silent = any(e.rank not in stood for e in events)
    return ("export PYTHONFAULTHANDLER=1 on every rank: its log then says where it stood",) if silent else ()


def _undecided_call(divergence: Divergence) -> str:
    """Who differs is plain, and that it is the code; but not how."""
    calls = [f"{name_ranks(c.ranks)} {c.op} {[list(s) for s in c.sizes[:2]]}" for c in divergence.cohorts if c.op]
    return (
        f"at {describe_slot(divergence)} ranks issued different calls ({'; '.join(calls[:3])}); "
        "without stacks nothing tells whether they took another path or passed other arguments"
    )


def _undecided(divergence: Divergence, incident: Incident) -> str:
    waiting = next((c for c in divergence.cohorts if c.op), None)
    who = (
        f"{name_ranks(waiting.ranks)} stand in {waiting.op} at {describe_slot(divergence)}"
        if waiting
        else describe_slot(divergence)
    )
    silent = tuple(r for r in divergence.unknown if r in without_dumps(incident))
    rest = (
        f"; no dump of {name_ranks(silent)} was given, and nothing says why"
        if silent
        else "; the evidence does not show why"
    )
    return who + rest


def _missing(incident: Incident) -> str:
    absent = without_dumps(incident)
    return f", none of {name_ranks(absent)} was given" if absent and incident.timeline.traces else ""


def _wanted(incident: Incident) -> tuple[str, ...]:
    """What would decide, as commands with this job's ranks in them."""
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


def _inconclusive(incident: Incident, summary: str, wanted: tuple[str, ...]) -> Verdict:
    divergence = incident.divergence
    finding = ()
    if divergence is not None:
        evidence = cite_divergence(divergence, incident)
        finding = (
            Finding("undecided", Cause.INCONCLUSIVE, (), 0.0, summary, Action.INVESTIGATE, evidence, divergence),
        )
    return Verdict(
        symptom=find_symptom(incident),
        cause=Cause.INCONCLUSIVE,
        confidence=0.0,
        action=Action.INVESTIGATE,
        suspects=(),
        summary=_sentence(summary),
        divergence=divergence,
        coverage=summarise_coverage(incident),
        findings=finding,
        next=wanted,
    )
