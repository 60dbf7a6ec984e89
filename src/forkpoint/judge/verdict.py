"""Stages 5 and 6: Incident -> Findings -> Verdict. Runs the detectors and weighs what they found; finds nothing itself."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from forkpoint.judge.detectors import DETECTORS, WITHOUT_CAUSE, Detector, healthy
from forkpoint.judge.facts.cite import cite_remarks, diagnose_others, fetch_written
from forkpoint.judge.facts.older_dumps import have_gone_on
from forkpoint.judge.facts.symptom import find_symptom, summarise_coverage
from forkpoint.judge.hypotheses.find import find_hypotheses
from forkpoint.judge.hypotheses.repairs import is_explained
from forkpoint.judge.naming import name_by_lines
from forkpoint.judge.telling.moments import find_moments
from forkpoint.judge.telling.phrases import barest, undecided_headlines
from forkpoint.knowledge.base import Clue, ClueField, KnownProblem, known
from forkpoint.model.headline import fit_headline
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogEvent
from forkpoint.model.verdict import Action, Cause, Coverage, Finding, Hypothesis, Symptom, Verdict
from forkpoint.parts import Parts

_DECIDING = 2
"""How many hypotheses are asked for what would decide them."""
_NO_CAUSE = (Cause.HEALTHY, Cause.INCONCLUSIVE)
_NOTHING = Finding(
    detector="undecided",
    cause=Cause.INCONCLUSIVE,
    suspects=(),
    confidence=0.0,
    summary="forkpoint broke on this evidence and cannot say what it shows",
    action=Action.INVESTIGATE,
    evidence=(),
)
"""The answer if even the detectors that always answer raised."""


def detect(incident: Incident, parts: Parts) -> tuple[Finding, ...]:
    """A cause counts only if its replay shows that the job stops there and that the repair would let it continue."""
    before = len(parts.broken)
    causes = [finding for find in DETECTORS for finding in _run(find, incident, parts, explained=True)]
    if causes:
        return tuple(causes)
    # If a detector raised, nobody knows whether something is wrong: the job is not called healthy.
    all_looked = len(parts.broken) == before
    asked = [find for find in WITHOUT_CAUSE if all_looked or find is not healthy.find]
    return next((found for find in asked if (found := _run(find, incident, parts))), (_NOTHING,))


def _run(find: Detector, incident: Incident, parts: Parts, *, explained: bool = False) -> tuple[Finding, ...]:
    name = f"the detector {find.__module__.rpartition('.')[2]}"
    return parts.run(name, lambda: tuple(f for f in find(incident) if not explained or is_explained(f, incident)), ())


def judge(incident: Incident, findings: tuple[Finding, ...], parts: Parts) -> Verdict:
    """The verdict rests on the strongest finding. There is always one: if no cause can be claimed, it says what can be
    said.
    """
    strongest, *others = sorted(findings, key=weigh)
    remarks = parts.run("the remarks of machines", lambda: tuple(cite_remarks(strongest.suspects, incident)), ())
    best = replace(strongest, evidence=tuple(dict.fromkeys((*strongest.evidence, *remarks))))
    hypotheses = () if best.cause is Cause.HEALTHY else _hypotheses(incident, (best, *others), parts)
    named = parts.run("what ranks printed", lambda: name_by_lines(best, hypotheses, incident), best)
    if named is not best:
        best, hypotheses = named, _hypotheses(incident, (named, *others), parts)
    return Verdict(
        symptom=parts.run("the symptom", lambda: _symptom(best, incident), None),
        cause=best.cause,
        confidence=best.confidence,
        action=best.action,
        suspects=best.suspects,
        summary=_sentence(_with_readings(best, hypotheses)),
        divergence=None if best.cause is Cause.HEALTHY else best.divergence or incident.divergence,
        coverage=parts.run("the coverage", lambda: _coverage(incident), _bare_coverage(incident)),
        findings=(best, *others) if best.evidence or best.cause not in _NO_CAUSE else (),
        next=parts.run("what to do next", lambda: _next(best, hypotheses, incident), best.next),
        hypotheses=hypotheses,
        moments=parts.run("the timeline", lambda: find_moments(incident), ()),
        headline=parts.run("the headline", lambda: _headline(best, hypotheses), ""),
    )


def _headline(best: Finding, hypotheses: tuple[Hypothesis, ...]) -> str:
    told = undecided_headlines(best, hypotheses) if best.cause is Cause.INCONCLUSIVE else best.headlines
    return fit_headline(told, barest(best.cause, best.suspects))


def _hypotheses(incident: Incident, findings: tuple[Finding, ...], parts: Parts) -> tuple[Hypothesis, ...]:
    return parts.run("the hypotheses", lambda: find_hypotheses(incident, findings), ())


def _coverage(incident: Incident) -> Coverage:
    found = summarise_coverage(incident)
    older = "the dumps are of an earlier moment: the ranks that wait in them went on, and ended in another call"
    return replace(found, notes=(*found.notes, older)) if have_gone_on(incident) else found


def _bare_coverage(incident: Incident) -> Coverage:
    capture = incident.capture
    return Coverage(len(incident.timeline.world), len(capture.traces), len(capture.logs), len(capture.stacks))


def _with_readings(best: Finding, hypotheses: tuple[Hypothesis, ...]) -> str:
    """For undecided verdicts: the most likely readings, and what would decide between them."""
    if best.cause is not Cause.INCONCLUSIVE or not hypotheses:
        return best.summary
    first, *rest = hypotheses
    other = f", or {rest[0].says}" if rest else ""
    return f"{best.summary}: {first.says} (most likely){other}; what decides: {first.decides}"


def _next(best: Finding, hypotheses: tuple[Hypothesis, ...], incident: Incident) -> tuple[str, ...]:
    """Empty only if nothing is wrong."""
    wanted = best.next or tuple(probe.title for probe in best.probes[:1])
    decides = [h.decides for h in hypotheses[:_DECIDING]] if best.cause is Cause.INCONCLUSIVE else []
    first = (*diagnose_others(incident), *_known_hints(incident), *fetch_written(incident))
    return tuple(dict.fromkeys((*first, *decides, *wanted)))


def weigh(finding: Finding) -> tuple[bool, float, str]:
    """Sort key: what ended or hung the job goes before values that were wrong while it ran."""
    return finding.cause is Cause.SILENT_CORRUPTION, -finding.confidence, finding.detector


def _symptom(best: Finding, incident: Incident) -> Symptom | None:
    """NO_HANG for a job that computes wrong values and shows nothing else; NONE for one that ended well."""
    seen = find_symptom(incident)
    if best.cause is Cause.HEALTHY and seen is None:
        return Symptom.NONE
    return Symptom.NO_HANG if best.cause is Cause.SILENT_CORRUPTION and seen in (None, Symptom.NONE) else seen


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'' if text.endswith(('.', '?')) else '.'}"


def _known_hints(incident: Incident) -> tuple[str, ...]:
    """Known problems whose logs look like these: something to try next, never a cause. None if the ranks' own records
    show how they parted.
    """
    events = incident.capture.events
    if not events or incident.divergence is not None:
        return ()
    found = [one.entry for one in known() if _looks_like(one, events)]
    return tuple(f"maybe known (no proof): {entry.do[0]} (forkpoint explain {entry.query})" for entry in found)


def _looks_like(problem: KnownProblem, events: Iterable[LogEvent]) -> bool:
    shown = all(any(_fits(clue, event) for event in events) for clue in problem.shows)
    return shown and not any(_fits(clue, event) for clue in problem.unless for event in events)


def _fits(clue: Clue, event: LogEvent) -> bool:
    return all(
        any(_is_said(place, word, said) for said in _says(place, event) for word in words)
        for place, words in clue.words
    )


def _is_said(place: ClueField, word: str, said: str) -> bool:
    """A clue about a frame may match a part of it; all other clues must match the whole."""
    return word in said if place is ClueField.FRAME else word == said


def _says(place: ClueField, event: LogEvent) -> Iterator[str]:
    if place is ClueField.KIND:
        yield event.kind
    elif place is ClueField.PATTERN:
        yield event.pattern
    elif place is ClueField.FRAME:
        yield from (f"{frame.filename} {frame.name}" for frame in event.stack)
    elif event.work is not None:
        value = {ClueField.OP: event.work.op, ClueField.SEQ: event.work.seq, ClueField.NUMEL: event.work.numel_in}[
            place
        ]
        yield str(value)
