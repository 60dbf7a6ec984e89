"""The stages in order. Reading happens before `diagnose`, printing after it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from forkpoint.align import align
from forkpoint.bare_sites import find_bare_sites
from forkpoint.cohorts import find_partings
from forkpoint.detectors import detect
from forkpoint.diverge import find_divergences
from forkpoint.judge.verdict import judge
from forkpoint.model.capture import Capture
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Verdict

if TYPE_CHECKING:
    from forkpoint.bridge.fork import Fork
    from forkpoint.source.analysis import Analysis
    from forkpoint.source.program import Program


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
    quoted = found.analysis.program if found.analysis is not None and embed_source else None
    return _with_picture(found.incident, found.verdict, quoted, source)


def examine(capture: Capture, source: Sequence[str] = ()) -> Examination:
    timeline = align(capture)
    partings = find_partings(timeline)
    divergences = find_divergences(timeline, partings)
    incident = Incident.of(capture, timeline, divergences)
    verdict = judge(incident, detect(incident))
    verdict = replace(verdict, sites=find_bare_sites(incident, verdict))
    return _with_source(incident, verdict, source) if source else Examination(incident, verdict)


# Most runs read no source and draw nothing, and both cost start-up time: these stages are imported where they run.


def _with_source(incident: Incident, verdict: Verdict, source: Sequence[str]) -> Examination:
    """Sites, probes and fixes."""
    from forkpoint.bridge.attach import attach_sites  # noqa: PLC0415 as said
    from forkpoint.remedies import attach_remedies  # noqa: PLC0415 as said
    from forkpoint.source.analysis import analyse  # noqa: PLC0415 as said
    from forkpoint.source.program import read_program  # noqa: PLC0415 as said

    analysis = analyse(read_program(source))
    verdict, forks = attach_sites(incident, verdict, analysis, source)
    return Examination(incident, attach_remedies(verdict, forks, analysis, source), analysis, forks)


def _with_picture(incident: Incident, verdict: Verdict, quoted: "Program | None", source: Sequence[str]) -> Verdict:
    from forkpoint.pictures import draw  # noqa: PLC0415 as said
    from forkpoint.pictures.quotes import quote_source  # noqa: PLC0415 as said

    drawn = draw(incident, verdict)
    if quoted is not None:
        drawn = replace(drawn, embeds_source=True, quotes=quote_source(verdict, quoted, source))
    return replace(verdict, picture=drawn)
