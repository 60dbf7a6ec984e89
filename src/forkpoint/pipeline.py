"""The stages in order. Reading happens before `diagnose`, printing after it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from forkpoint.diverge import find_divergences
from forkpoint.diverge.align import align
from forkpoint.diverge.cohorts import find_partings
from forkpoint.judge.detectors import detect
from forkpoint.judge.verdict import judge
from forkpoint.model.capture import BROKE_ON_IT, Capture, SetAside
from forkpoint.model.frames import user_frames
from forkpoint.model.incident import Cohort, Divergence, Incident, Role
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Cause, Site, Verdict
from forkpoint.parts import Parts, work_without_some

if TYPE_CHECKING:
    from forkpoint.source.analysis import Analysis
    from forkpoint.source.bridge.fork import Fork

# ---------------------------------------------------------------------------------------------------------------------
# Sites from stacks alone, where no source was given: the line at which each cohort stands, and nothing more.

_MAX_SITES = 3
_HELD = frozenset({Cause.HOST_STALL, Cause.GPU_STALL, Cause.NEVER_JOINED, Cause.STRAGGLER})


def find_bare_sites(incident: Incident, verdict: Verdict) -> tuple[Site, ...]:
    """The odd ranks' place first."""
    found = [*_held(incident, verdict)] or [*_parting(verdict.divergence, verdict.suspects)]
    return tuple(dict.fromkeys(found))[:_MAX_SITES]


def _held(incident: Incident, verdict: Verdict) -> Iterator[Site]:
    """Where the suspects' main threads were, if that is what holds the others."""
    if verdict.cause in _HELD:
        for live in incident.capture.stacks:
            frames = user_frames(live.stack)
            if live.rank in verdict.suspects and frames:
                yield _site(frames[0], _cohort_of(live.rank, verdict.divergence))


def _parting(divergence: Divergence | None, suspects: tuple[int, ...]) -> Iterator[Site]:
    """The first frames, from outside, in which the stacks of cohorts differ; where they do not, the innermost."""
    cohorts = divergence.cohorts if divergence else ()
    # The stack of a rank that is behind is that of its last finished call: it is no longer there.
    framed = [(i, c) for i, c in enumerate(cohorts) if user_frames(c.stack) and c.role is not Role.BEHIND]
    framed.sort(key=lambda item: (set(item[1].ranks).isdisjoint(suspects), item[0]))
    shared = _shared([c for _, c in framed])
    for place, cohort in framed:
        frames = _outermost_first(cohort.stack)
        yield _site(frames[min(shared, len(frames) - 1)], place)


def _shared(cohorts: list[Cohort]) -> int:
    """Frames, from outside, that all have in common."""
    columns = zip(*(_outermost_first(c.stack) for c in cohorts), strict=False)
    return next((i for i, frames in enumerate(columns) if len(set(frames)) > 1), FAR_INSIDE)


FAR_INSIDE = 1_000_000
"""They never differ: the innermost frame is shown."""


def _outermost_first(stack: Stack | None) -> tuple[Frame, ...]:
    return user_frames(stack)[::-1]


def _cohort_of(rank: int, divergence: Divergence | None) -> int | None:
    cohorts = divergence.cohorts if divergence else ()
    return next((i for i, c in enumerate(cohorts) if rank in c.ranks), None)


def _site(frame: Frame, cohort: int | None) -> Site:
    return Site(frame.filename, frame.line, frame.name, cohort=cohort)


@dataclass(frozen=True, slots=True, eq=False)
class Examination:
    """A verdict with all that it was judged from, for those who ask on."""

    incident: Incident
    verdict: Verdict
    analysis: "Analysis | None" = None
    """Of the source; None where none was given."""
    forks: "tuple[Fork, ...]" = ()
    """Places in the source at which ways can have parted, best first."""


def diagnose(
    capture: Capture, source: Sequence[str] = (), *, picture: bool = False, embed_source: bool = False
) -> Verdict:
    """`source`: folders or files of the program that ran; without them sites are the lines of stacks alone.

    `picture`: also what a page draws, with lines of the source in it where `embed_source` says so.
    """
    found = examine(capture, source)
    if not picture:
        return found.verdict
    parts = Parts()
    drawn = parts.run(
        "the picture",
        lambda: _with_picture(found.incident, found.verdict, embed_source=embed_source),
        found.verdict,
    )
    return _with_broken(drawn, parts)


def examine(capture: Capture, source: Sequence[str] = ()) -> Examination:
    """Whatever the evidence is, there is a verdict: a part that breaks is told, and costs itself alone."""
    parts = Parts(capture.internal)
    incident = _find_incident(capture, parts)
    verdict = judge(incident, detect(incident, parts), parts)
    sites = parts.run("the lines of stacks", lambda: find_bare_sites(incident, verdict), ())
    found = Examination(incident, replace(verdict, sites=sites))
    if source:
        found = parts.run("the source", lambda: _with_source(incident, found.verdict, source), found)
    return replace(found, verdict=_with_broken(found.verdict, parts))


def _with_broken(verdict: Verdict, parts: Parts) -> Verdict:
    if not parts.broken:
        return verdict
    notes = (*verdict.coverage.notes, *dict.fromkeys(problem.says for problem in parts.broken))
    told = replace(verdict.coverage, notes=notes)
    return replace(verdict, coverage=told, internal=(*verdict.internal, *parts.broken))


def _find_incident(capture: Capture, parts: Parts) -> Incident:
    """Where a stage breaks, without the dumps on which it breaks; if need be without any evidence."""
    whole = parts.run("the comparison of ranks", lambda: _compare(capture), None)
    if whole is not None:
        return whole
    found = work_without_some(len(capture.traces), lambda dumps: _compare(_without(capture, dumps)))
    return found[0] if found else _compare(Capture(capture.traces[:0], capture.tables, problems=capture.problems))


def _compare(capture: Capture) -> Incident:
    timeline = align(capture)
    return Incident.of(capture, timeline, find_divergences(timeline, find_partings(timeline)))


def _without(capture: Capture, dumps: Sequence[int]) -> Capture:
    aside = [SetAside(capture.traces[at].file, capture.traces[at].rank, BROKE_ON_IT) for at in dumps]
    left = np.delete(np.arange(len(capture.traces)), list(dumps))
    return replace(capture, traces=capture.traces.take(left), set_aside=(*capture.set_aside, *aside))


# Most runs read no source and draw nothing, and both cost start-up time: these stages are imported where they run.


def _with_source(incident: Incident, verdict: Verdict, source: Sequence[str]) -> Examination:
    """Sites, probes and fixes."""
    from forkpoint.remedies import attach_remedies  # noqa: PLC0415 as said
    from forkpoint.report.pictures.quotes import quote_source  # noqa: PLC0415 as said
    from forkpoint.source.analysis import analyse  # noqa: PLC0415 as said
    from forkpoint.source.bridge import attach_sites  # noqa: PLC0415 as said
    from forkpoint.source.program import read_program  # noqa: PLC0415 as said

    analysis = analyse(read_program(source))
    verdict, forks = attach_sites(incident, verdict, analysis, source)
    verdict = replace(verdict, quotes=quote_source(verdict, analysis.program, source))
    return Examination(incident, attach_remedies(verdict, forks, analysis, source), analysis, forks)


def _with_picture(incident: Incident, verdict: Verdict, *, embed_source: bool) -> Verdict:
    from forkpoint.report.pictures import draw  # noqa: PLC0415 as said

    quotes = verdict.quotes if embed_source else ()
    drawn = replace(draw(incident, verdict), embeds_source=embed_source, quotes=quotes)
    return replace(verdict, picture=drawn)
