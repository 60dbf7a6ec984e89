"""The stages in order. Reading happens before `diagnose`, printing after it."""

from forkpoint.align import align
from forkpoint.cohorts import find_partings
from forkpoint.detectors import detect
from forkpoint.diverge import find_divergences
from forkpoint.judge import judge
from forkpoint.model.capture import Capture
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Verdict


def diagnose(capture: Capture) -> Verdict:
    timeline = align(capture)
    partings = find_partings(timeline)
    divergences = find_divergences(timeline, partings)
    incident = Incident.of(capture, timeline, divergences)
    return judge(incident, detect(incident))
