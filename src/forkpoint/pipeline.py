"""The stages in order. Reading happens before `diagnose`, printing after it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct, structs

from forkpoint.diverge import find_divergences, find_partings
from forkpoint.diverge.align import align
from forkpoint.judge.facts.older_dumps import without_old_waits
from forkpoint.judge.verdict import detect, judge
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
# Without source, sites come from stacks alone: the line that each cohort is at.

_MAX_SITES = 3
_HELD = frozenset({Cause.HOST_STALL, Cause.GPU_STALL, Cause.NEVER_JOINED, Cause.STRAGGLER})


def find_bare_sites(incident: Incident, verdict: Verdict) -> tuple[Site, ...]:
    """Sites of the suspects come first."""
    found = [*_held(incident, verdict)] or [*_parting(verdict.divergence, verdict.suspects)]
    return tuple(dict.fromkeys(found))[:_MAX_SITES]


def _held(incident: Incident, verdict: Verdict) -> Iterator[Site]:
    """Where the suspects' main threads were, if that is what blocks the others."""
    if verdict.cause in _HELD:
        for live in incident.capture.stacks:
            frames = user_frames(live.stack)
            if live.rank in verdict.suspects and frames:
                yield _site(frames[0], _cohort_of(live.rank, verdict.divergence))


def _parting(divergence: Divergence | None, suspects: tuple[int, ...]) -> Iterator[Site]:
    """The outermost frame in which the stacks of cohorts differ; the innermost frame if they do not."""
    cohorts = divergence.cohorts if divergence else ()
    # A rank that is behind has the stack of its last finished call: it has moved on since.
    framed = [(i, c) for i, c in enumerate(cohorts) if user_frames(c.stack) and c.role is not Role.BEHIND]
    framed.sort(key=lambda item: (set(item[1].ranks).isdisjoint(suspects), item[0]))
    # Stacks that do not even share the script (autograd calls come from a separate thread) part nowhere.
    shared = _shared([c for _, c in framed]) or FAR_INSIDE
    for place, cohort in framed:
        frames = _outermost_first(cohort.stack)
        yield _site(frames[min(shared, len(frames) - 1)], place)


def _shared(cohorts: list[Cohort]) -> int:
    """How many outermost frames all stacks have in common."""
    columns = zip(*(_outermost_first(c.stack) for c in cohorts), strict=False)
    return next((i for i, frames in enumerate(columns) if len(set(frames)) > 1), FAR_INSIDE)


FAR_INSIDE = 1_000_000
"""The stacks never differ: show the innermost frame."""


def _outermost_first(stack: Stack | None) -> tuple[Frame, ...]:
    return user_frames(stack)[::-1]


def _cohort_of(rank: int, divergence: Divergence | None) -> int | None:
    cohorts = divergence.cohorts if divergence else ()
    return next((i for i, c in enumerate(cohorts) if rank in c.ranks), None)


def _site(frame: Frame, cohort: int | None) -> Site:
    return Site(frame.filename, frame.line, frame.name, cohort=cohort)


class Examination(Struct, frozen=True, eq=False):
    """A verdict with everything it was judged from, for follow-up questions."""

    incident: Incident
    verdict: Verdict
    analysis: "Analysis | None" = None
    """None without source."""
    forks: "tuple[Fork, ...]" = ()
    """Branches in the source where ranks may have parted, best first."""


def diagnose(
    capture: Capture, source: Sequence[str] = (), *, picture: bool = False, embed_source: bool = False
) -> Verdict:
    """`source`: folders or files of the program that ran; without them sites come from stacks alone.

    `picture`: also the data that the HTML page draws, with source lines if `embed_source`.
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
    """Always gives a verdict: a part that raises is reported, and only its own result is lost."""
    parts = Parts(capture.internal)
    analysis = parts.run("the source", lambda: _read_source(capture, source), None) if source else None
    if analysis is not None:
        capture = parts.run("what the source says of stacks", lambda: _with_witness(capture, analysis), capture)
    incident = _find_incident(capture, parts)
    verdict = judge(incident, detect(incident, parts), parts)
    sites = parts.run("the lines of stacks", lambda: find_bare_sites(incident, verdict), ())
    found = Examination(incident, replace(verdict, sites=sites))
    if analysis is not None:
        found = parts.run("the sites", lambda: _with_source(incident, found.verdict, analysis, source), found)
    return structs.replace(found, verdict=_with_broken(found.verdict, parts))


def _with_broken(verdict: Verdict, parts: Parts) -> Verdict:
    if not parts.broken:
        return verdict
    notes = (*verdict.coverage.notes, *dict.fromkeys(problem.says for problem in parts.broken))
    told = replace(verdict.coverage, notes=notes)
    return replace(verdict, coverage=told, internal=(*verdict.internal, *parts.broken))


def _find_incident(capture: Capture, parts: Parts) -> Incident:
    """If comparing raises, it is repeated without the dumps that make it raise; at worst without any evidence."""
    whole = parts.run("the comparison of ranks", lambda: _compare(capture), None)
    if whole is not None:
        return whole
    found = work_without_some(len(capture.traces), lambda dumps: _compare(_without(capture, dumps)))
    return found[0] if found else _compare(Capture(capture.traces[:0], capture.tables, problems=capture.problems))


def _compare(capture: Capture) -> Incident:
    timeline = align(capture)
    return without_old_waits(Incident.of(capture, timeline, find_divergences(timeline, find_partings(timeline))))


def _without(capture: Capture, dumps: Sequence[int]) -> Capture:
    aside = [SetAside(capture.traces[at].file, capture.traces[at].rank, BROKE_ON_IT) for at in dumps]
    left = np.delete(np.arange(len(capture.traces)), list(dumps))
    return replace(capture, traces=capture.traces.take(left), set_aside=(*capture.set_aside, *aside))


# Most runs read no source and draw nothing, and importing either costs start-up time: these stages are imported where they run.


def _read_source(capture: Capture, source: Sequence[str]) -> "Analysis":
    from forkpoint.source.analysis import analyse  # noqa: PLC0415 as said
    from forkpoint.source.program import read_program  # noqa: PLC0415 as said

    named = {PurePath(frame.filename).name for stack in _all_stacks(capture) for frame in stack}
    return analyse(read_program(source, most=_MOST_SOURCE, first=named))


def _with_witness(capture: Capture, analysis: "Analysis") -> Capture:
    from forkpoint.source.builtin_calls import name_builtins  # noqa: PLC0415 as said
    from forkpoint.source.witness import read_witness  # noqa: PLC0415 as said

    named = name_builtins(capture, analysis)
    return replace(named, source=read_witness(named, analysis))


def _with_source(incident: Incident, verdict: Verdict, analysis: "Analysis", source: Sequence[str]) -> Examination:
    """Sites, probes and fixes."""
    from forkpoint.remedies import attach_remedies  # noqa: PLC0415 as said
    from forkpoint.report.pictures.quotes import quote_source  # noqa: PLC0415 as said
    from forkpoint.source.bridge import attach_sites  # noqa: PLC0415 as said

    verdict, forks = attach_sites(incident, verdict, analysis, source)
    verdict = replace(verdict, quotes=quote_source(verdict, analysis.program, source))
    return Examination(incident, attach_remedies(verdict, forks, analysis, source), analysis, forks)


_MOST_SOURCE = 1_000_000
"""Limit on words of source, about 9 MB of it. Files that occur in stacks are read first."""


def _all_stacks(capture: Capture) -> Iterator[Stack]:
    yield from capture.tables.stacks.values()
    yield from (held.stack for held in (*capture.stacks, *capture.events) if held.stack)


def _with_picture(incident: Incident, verdict: Verdict, *, embed_source: bool) -> Verdict:
    from forkpoint.report.pictures import draw  # noqa: PLC0415 as said

    quotes = verdict.quotes if embed_source else ()
    drawn = replace(draw(incident, verdict), embeds_source=embed_source, quotes=quotes)
    return replace(verdict, picture=drawn)
