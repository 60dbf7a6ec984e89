"""A process died, was killed, or never wrote again.

What it looks like
    Others wait for a rank that left no dump; its log ends in a signal or in "out of memory", or stops without a word
    while the others report the failure.

Why it happens
    The kernel's or the scheduler's kill, memory, a crash in native code, a node that went down, a stopped process.

What rules it out
    Its log ends in an exception of its own code (divergent-path). No log of it at all: then it is only not known. Its
    log says that it dumped: the dump was not collected.

Fix
    Find who killed it (dmesg, scheduler, cgroup memory); retry, elsewhere if the node is at fault.
"""

from collections.abc import Iterator

from forkpoint.cohorts import cohorts_at
from forkpoint.detectors.cite import cite_divergence, cite_event, describe_slot
from forkpoint.detectors.confidence import LIKELY, STRONG
from forkpoint.detectors.departures import Departed, Departure, find_departed, missing_from
from forkpoint.model.divergence import Divergence, PartingKind
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogKind
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Action, Cause, Evidence, Finding, Fix, Probe

NAME = "rank-lost"
_LOST = (Departure.KILLED, Departure.WENT_SILENT)


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    if divergence is not None and divergence.how not in (PartingKind.ABSENCE, PartingKind.STUCK):
        return
    if any(e.kind is LogKind.RENDEZVOUS for e in incident.capture.events):
        return  # it may never have been there
    missing = missing_from(divergence, incident)
    lost = [d for d in find_departed(incident) if d.how in _LOST and d.rank in missing]
    if not lost or 2 * len(lost) >= len(incident.timeline.world):
        return
    ranks = tuple(d.rank for d in lost)
    divergence = divergence or _last_slot(ranks, incident)
    where = f" while others wait at {describe_slot(divergence)}" if divergence else ""
    yield Finding(
        detector=NAME,
        cause=Cause.RANK_LOST,
        suspects=ranks,
        confidence=STRONG if any(d.event for d in lost) else LIKELY,
        summary=f"{name_ranks(ranks)} {_tell(lost[0])}{where}",
        action=Action.REPLACE_OR_RETRY,
        evidence=(
            *(_cite(d, incident) for d in lost[:4]),
            *(cite_divergence(divergence, incident) if divergence else ()),
        ),
        divergence=divergence,
        probes=(Probe("dmesg -T | grep -i -E 'killed process|xid' on its node; the scheduler's record of its exit"),),
        fixes=(Fix("give the process the memory it needs, or leave out the node that lost it"),),
        next=(f"the last 50 lines of the log of rank {ranks[0]}, and dmesg of its node",),
    )


def _last_slot(lost: tuple[int, ...], incident: Incident) -> Divergence | None:
    """Where the others' ops failed: gloo takes a failed op off its list like a done one, so nothing is pending."""
    lasts = [(g, t.last) for g in incident.timeline.groups for r in g.traces if (t := g.track(r))]
    if not lasts:
        return None
    group = max(lasts, key=lambda item: item[1].created_ns)[0]
    seqs = {t.last_seq for r in group.traces if (t := group.track(r))}
    if len(seqs) != 1 or any(r in group.traces for r in lost):
        return None
    (seq,) = seqs
    others = tuple(group.traces)
    cohorts = cohorts_at(group, seq, incident.timeline)
    return Divergence(PartingKind.ABSENCE, group.group, None, seq, seq, seq, cohorts, (), (others,), unknown=lost)


def _tell(lost: Departed) -> str:
    return (
        f"was lost ({lost.event.text})"
        if lost.event
        else "left no dump and its log stops without a word of the failure"
    )


def _cite(lost: Departed, incident: Incident) -> Evidence:
    if lost.event:
        return cite_event(lost.event)
    file = next((f for f, r in incident.capture.logs if r == lost.rank), "")
    return Evidence(file, lost.rank, "end", "no word of the failure that other ranks report, and no dump")
