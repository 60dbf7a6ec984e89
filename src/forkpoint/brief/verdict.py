"""The verdict as a claim, the hypotheses with what supports and contradicts each, and the files that were read."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from forkpoint.brief.calls import tell_divergence
from forkpoint.brief.case import Case, plain_name, shortened
from forkpoint.judge.hypotheses.find import find_refused
from forkpoint.model.verdict import Cause, Evidence, Hypothesis, Verdict
from forkpoint.model.world import name_ranks

_RANGES = 4
_SHOWN = 3
_CITED = 4
_HYPOTHESES = 6
_FIRST_ONES = 2
_LONG = 180
_MEANING = (
    (0.9, "two independent kinds of evidence say so"),
    (0.8, "recorded facts show it"),
    (0.6, "the best reading; another is possible"),
    (0.0, "what is left when the rest is ruled out"),
)


# ---------------------------------------------------------------------------------------------------------------------
# The verdict.


def tell_verdict(case: Case) -> Iterator[str]:
    verdict = case.verdict
    yield from _judgement(verdict)
    yield from _fork(verdict)
    for site in verdict.sites[:_SHOWN]:
        told = " ".join(filter(None, [f"`{site.condition}`:" if site.condition else "", site.why]))
        place = f"{plain_name(case.name_inside(site.file))}:{site.line} in {plain_name(site.function)}"
        yield f"possible place: {place}{f' |{shortened(case, told, 240)}' if told else ''}"


def _judgement(verdict: Verdict) -> Iterator[str]:
    if verdict.cause is Cause.INCONCLUSIVE:
        yield f"UNDECIDED |{verdict.headline or verdict.summary}"
        yield "No cause is proved; the hypotheses below are in order of likelihood, and none is excluded."
        return
    meaning = next(says for least, says in _MEANING if verdict.confidence >= least)
    who = name_ranks(verdict.suspects, _RANGES) if verdict.suspects else "no rank can be singled out"
    yield f"in one sentence |{verdict.headline or verdict.summary}"
    yield f"cause {verdict.cause}; suspects: {who}; symptom {verdict.symptom or 'unknown'}; confidence {verdict.confidence:g} ({meaning})"


def _fork(verdict: Verdict) -> Iterator[str]:
    fork = verdict.divergence
    if fork is None:
        return
    slot = f" message {fork.seq} of {fork.channel[0]}->{fork.channel[1]}" if fork.channel else f" seq {fork.seq}"
    yield f"fork: {plain_name(str(fork.group))}{slot if fork.seq is not None else ''}; {tell_divergence(fork)}"
    repair = verdict.hypotheses[0].repair if verdict.hypotheses else None
    if repair and verdict.cause is not Cause.INCONCLUSIVE:
        yield f"replay |{repair}"


# ---------------------------------------------------------------------------------------------------------------------
# Hypotheses.


def tell_hypotheses(case: Case) -> Iterator[str]:
    """All of them, then the evidence of each: if space is short, evidence is dropped before an alternative is."""
    verdict = case.verdict
    undecided = verdict.cause is Cause.INCONCLUSIVE
    for number, one in enumerate(verdict.hypotheses[:_HYPOTHESES], start=1):
        says = (
            ""
            if one.says in {verdict.headline, verdict.summary} and not undecided
            else f" |{shortened(case, one.says, _LONG if number <= _FIRST_ONES else _LONG // 2)}"
        )
        yield f"H{number} {one.likelihood}: {tell_claim(one)}{says}"
    if len(verdict.hypotheses) > _HYPOTHESES:
        yield f"and {len(verdict.hypotheses) - _HYPOTHESES} more"
    yield from _weighed(case)
    for one in () if verdict.hypotheses else verdict.evidence[:_CITED]:
        yield f"evidence: {_cite(case, one)}"
    for refused in find_refused(case.incident, verdict.findings)[:_SHOWN]:
        yield f"rejected by replay of the recorded calls: {tell_claim(refused)}"
    for note in verdict.coverage.notes[:_SHOWN]:
        yield f"note |{shortened(case, note, _LONG)}"


def _weighed(case: Case) -> Iterator[str]:
    """Evidence that was shown before is referred to, not repeated."""
    hypotheses = case.verdict.hypotheses
    seen: dict[Evidence, str] = {}
    for number, one in enumerate(hypotheses, start=1):
        for what, cited in (("for", one.supports), ("against", one.against)):
            fresh = [e for e in cited if e not in seen][: _CITED if len(hypotheses) == 1 else 2]
            seen.update((e, f"H{number}") for e in fresh)
            yield from (f"{what} H{number}: {_cite(case, e)}" for e in fresh)
            if cited and not fresh:
                yield f"{what} H{number}: as for {' and '.join(dict.fromkeys(seen.get(e, 'others') for e in cited))}"
        if one.lacks:
            yield f"H{number} lacks |{shortened(case, '; '.join(one.lacks), _LONG)}"
        if len(hypotheses) > 1 and one.decides:
            yield f"would decide H{number} |{shortened(case, one.decides, _LONG)}"


def _cite(case: Case, evidence: Evidence) -> str:
    return f"{plain_name(case.name_inside(evidence.file))} {evidence.where} |{shortened(case, evidence.says, _LONG)}"


def tell_claim(hypothesis: Hypothesis) -> str:
    """`divergent-path of rank 3`."""
    sides = " or ".join(name_ranks(side, _RANGES) for side in hypothesis.sides[:_SHOWN])
    who = name_ranks(hypothesis.suspects, _RANGES) if hypothesis.suspects else sides
    other = f" (or {', '.join(hypothesis.alternatives)})" if hypothesis.alternatives else ""
    return f"{hypothesis.cause}{other} of {who or 'nobody in particular'}"


# ---------------------------------------------------------------------------------------------------------------------
# Files.


def tell_files(case: Case) -> Iterator[str]:
    capture, timeline = case.incident.capture, case.incident.timeline
    logs = sorted({rank for _, rank in capture.logs if rank is not None})
    stacked = sorted({live.rank for live in capture.stacks})
    read = [
        f"{len(timeline.traces)} dumps{_lacking(timeline.world, timeline.traces)}",
        f"{len(capture.logs)} logs{_lacking(timeline.world, logs) if logs else ''}",
        f"stacks of {name_ranks(stacked, _RANGES)}" if stacked else "no stacks",
    ]
    yield f"read: {', '.join(read)}; the job has {len(timeline.world)} ranks as far as is known"
    if timeline.blind:
        yield f"cut: dumps of {name_ranks(timeline.blind, _RANGES)} end early; what is after is unknown"
    for one in case.verdict.coverage.set_aside[:_SHOWN]:
        yield f"set aside (--use FILE judges it anyway): {plain_name(case.name_inside(one.file))} |{one.why}"
    if len(case.verdict.coverage.set_aside) > _SHOWN:
        yield f"set aside: {len(case.verdict.coverage.set_aside) - _SHOWN} more files"
    yield from _problems(case, [(problem.file, problem.text) for problem in capture.problems])


def _lacking(world: Sequence[int], there: Iterable[int]) -> str:
    lacking = sorted(set(world) - set(there))
    return f" (none of {name_ranks(lacking, _RANGES)})" if lacking else ""


def _problems(case: Case, found: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The same problem in many files is listed once."""
    counts = Counter(text for _, text in found)
    for text, times in list(counts.items())[:_SHOWN]:
        file = next(name for name, said in found if said == text)
        yield f"problem: {plain_name(case.name_inside(file))} |{shortened(case, text, _LONG)}" + (
            f" ({times} files)" if times > 1 else ""
        )
