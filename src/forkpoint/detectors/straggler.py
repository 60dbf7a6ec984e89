"""Same order, only late: the timeout is shorter than the work.

What it looks like
    All members issued the same op, one of them later than the others by more than the group's timeout.

Why it happens
    A long step on one rank: evaluation, compilation, a checkpoint, a slow node; or a timeout set too short for it.

What rules it out
    It never came (host-stall). It came within the timeout (gpu-stall, transport). It issued another op.

Fix
    Raise the group's timeout above the longest honest wait, or take the slow work out of the step.
"""

import re
from collections.abc import Iterator

from forkpoint.clocks import find_clocks
from forkpoint.detectors.cite import cite_divergence, cite_event, describe_slot, events_of
from forkpoint.detectors.confidence import LIKELY, STRONG
from forkpoint.detectors.lateness import late_ranks
from forkpoint.model.divergence import PartingKind
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogKind
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Action, Cause, Evidence, Finding, Fix, Probe
from forkpoint.stragglers import find_arrivals

NAME = "straggler"
_NUMBER = re.compile(r"\d{1,7}")


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    if divergence is None:
        yield from _by_words(incident)
    if divergence is None or divergence.how is not PartingKind.STUCK:
        return
    late = late_ranks(divergence, incident)
    if not late:
        return
    ranks = tuple(sorted(late))
    yield Finding(
        detector=NAME,
        cause=Cause.STRAGGLER,
        suspects=ranks,
        confidence=STRONG,
        summary=f"{name_ranks(ranks)} came to {describe_slot(divergence)} {max(late.values()):.1f} s after the others: later than the timeout",
        action=Action.RAISE_TIMEOUT,
        evidence=(*cite_divergence(divergence, incident), *_cite_habit(ranks, incident)),
        divergence=divergence,
        probes=(Probe("time the work before this op on the late rank"),),
        fixes=(Fix("raise the timeout of this group above the longest honest wait, or shorten the work before it"),),
    )


def _by_words(incident: Incident) -> Iterator[Finding]:
    """Rank 0 says who did not come to a monitored barrier in time, and they say that they came to it."""
    told = [e for e in incident.capture.events if e.kind is LogKind.BARRIER_MISSED and e.rank == 0]
    ranks = tuple(sorted({int(n) for e in told for n in _NUMBER.findall(e.detail("missing") or "")}))
    came = [e for r in ranks for e in events_of(r, incident, LogKind.PEER_TIMEOUT) if e.pattern.startswith("barrier-")]
    if not ranks or {e.rank for e in came} != set(ranks) or 2 * len(ranks) >= len(incident.timeline.world):
        return
    yield Finding(
        detector=NAME,
        cause=Cause.STRAGGLER,
        suspects=ranks,
        confidence=LIKELY,
        summary=f"{name_ranks(ranks)} came to a barrier only after the others had waited {told[0].detail('ms')} ms and given up",
        action=Action.RAISE_TIMEOUT,
        evidence=(*(cite_event(e) for e in told[:2]), *(cite_event(e) for e in came[:2])),
        probes=(Probe("time the work before this barrier on the late rank"),),
        fixes=(Fix("raise the timeout above the longest honest wait, or shorten the work before the barrier"),),
    )


def _cite_habit(ranks: tuple[int, ...], incident: Incident) -> Iterator[Evidence]:
    """That a late rank was last before too, most of the time."""
    for arrivals in find_arrivals(incident.timeline, find_clocks(incident.capture, incident.timeline)):
        late = arrivals.straggler
        if late is not None and late.rank in ranks:
            said = f"rank {late.rank} came last {late.times} of the last {arrivals.met} times that {arrivals.group} met"
            where = f" at {arrivals.site}" if arrivals.site else ""
            says = f"{said}{where}, {late.usual_ns / 1e6:.0f} ms after the others"
            yield Evidence(incident.timeline.traces[late.rank].file, late.rank, "last entries", says)
