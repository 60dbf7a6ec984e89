"""The stages in order. Reading happens before `diagnose`, printing after it."""

from collections.abc import Sequence
from dataclasses import replace

from forkpoint.align import align
from forkpoint.bare_sites import find_bare_sites
from forkpoint.cohorts import find_partings
from forkpoint.detectors import detect
from forkpoint.diverge import find_divergences
from forkpoint.judge import judge
from forkpoint.model.capture import Capture
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Verdict


def diagnose(capture: Capture, source: Sequence[str] = ()) -> Verdict:
    """`source`: folders or files of the program that ran; without them sites are the lines of stacks alone."""
    timeline = align(capture)
    partings = find_partings(timeline)
    divergences = find_divergences(timeline, partings)
    incident = Incident.of(capture, timeline, divergences)
    verdict = judge(incident, detect(incident))
    verdict = replace(verdict, sites=find_bare_sites(incident, verdict))
    return _with_source(incident, verdict, source) if source else verdict


def _with_source(incident: Incident, verdict: Verdict, source: Sequence[str]) -> Verdict:
    from forkpoint.bridge.attach import attach_sites  # noqa: PLC0415 the reader of source costs start-up time

    return attach_sites(incident, verdict, source)
