"""All ranks entered the op, and the network, NVLink or a NIC does not deliver.

What it looks like
    All members issued the same op and it does not finish, and a log has a network error *before* the timeout; or start
    events show it running on every member. Or every rank of the job says of this one call that a peer closed its
    connection, and nothing else went wrong: a process that ends cannot log that its peers did, so the first
    connection was lost while all of them were alive. One link may carry several groups: they stop at the same number.

Why it happens
    A link, switch or NIC that drops, a firewall, a wrong interface, an InfiniBand port that went down.

What rules it out
    A member that is gone (rank-lost): its connections close too. Network errors only after the timeout: shutting ranks
    down closes connections. A rank that logs anything else, or about which nothing is known: it may have ended first. A
    member that has not started (gpu-stall). Roots or splits that may differ: they are not recorded. A second thread that
    calls in the same group (order-inversion).

Fix
    Retry on other nodes; test the pair with nccl-tests; look at the port's counters.
"""

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.judge.facts.blame import cut_off, find_closings, network_events
from forkpoint.judge.facts.calls import find_last_slot, may_differ_unseen, shares_group_with_thread
from forkpoint.judge.facts.cite import LIKELY, STRONG, cite_divergence, cite_event, describe_slot
from forkpoint.judge.facts.departures import missing_from
from forkpoint.judge.facts.refusal import refused_sizes
from forkpoint.judge.hypotheses.repairs import find_stuck_beside
from forkpoint.judge.telling.phrases import everyone, shared_call
from forkpoint.model.frames import user_place
from forkpoint.model.headline import plain_ranks, with_endings
from forkpoint.model.incident import Divergence, Incident, PartingKind
from forkpoint.model.log import FAILURES, LogEvent
from forkpoint.model.op import OpState
from forkpoint.model.verdict import Action, Cause, Finding, Fix, Probe
from forkpoint.model.world import ProcessGroup

NAME = "transport"


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    if cut := _cut_while_alive(incident):
        divergence = divergence or find_last_slot(PartingKind.STUCK, (), incident)
    if divergence is None or divergence.how is not PartingKind.STUCK or missing_from(divergence, incident):
        return
    if cut and set(divergence.sides[0]) == set(incident.timeline.world):
        seen = "every rank reports that a peer closed its connection there, and none ended before that"
        finding = _finding(divergence, f"all members issued {describe_slot(divergence)}; {seen}", LIKELY, cut, incident)
        plain = f"{everyone(divergence, incident)} were in {shared_call(divergence, incident)} when their connections broke, and none had ended before"
        yield replace(finding, headlines=(plain,))
        return
    events = network_events(incident)
    if shares_group_with_thread(divergence, incident):
        return  # calls of two threads may be launched in another order on each rank
    beside = () if events else find_stuck_beside(divergence, incident)
    slots = [(divergence.group, divergence.sides[0]), *((slot.group, tuple(slot.waiting)) for slot in beside)]
    run = divergence.channel is None and all(_runs_everywhere(*slot, incident) for slot in slots)
    if refused_sizes(incident) or not (events or (run and not may_differ_unseen(divergence, incident))):
        return
    alike = f"all members issued {describe_slot(divergence)} and it does not finish"
    seen = "the logs have a network error before the timeout" if events else "it was running on every member"
    finding = _finding(divergence, f"{alike}; {seen}", STRONG if events else LIKELY, events, incident)
    plain = f"{everyone(divergence, incident)} are in {shared_call(divergence, incident)}, and it does not finish"
    if beside:
        ranks = sorted({*divergence.sides[0], *(rank for slot in beside for rank in slot.waiting)})
        plain = f"{plain_ranks(ranks)} are in {shared_call(divergence, incident)}, in {len(beside) + 1} groups of which none finishes"
        finding = replace(
            finding,
            summary=f"{finding.summary}, and so in {len(beside)} groups beside it: no single GPU can hold them all",
        )
    why = "; a network error came before the timeout" if events else "; it runs on every GPU, so data does not arrive"
    yield replace(finding, headlines=with_endings(plain, why))


def _finding(
    divergence: Divergence, summary: str, confidence: float, events: tuple[LogEvent, ...], incident: Incident
) -> Finding:
    return Finding(
        detector=NAME,
        cause=Cause.TRANSPORT,
        suspects=(),
        confidence=confidence,
        summary=summary,
        action=Action.REPLACE_OR_RETRY,
        evidence=(*(cite_event(e) for e in events[:4]), *cite_divergence(divergence, incident)),
        divergence=divergence,
        probes=(Probe("all_reduce_perf of nccl-tests over the same nodes, then over halves of them"),),
        fixes=(Fix("leave out the node whose port reports errors; retry"),),
        next=("ibstat; perfquery on each node", "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET"),
    )


def _cut_while_alive(incident: Incident) -> tuple[LogEvent, ...]:
    """The log lines of all ranks, if each says of one and the same call that a peer closed its connection, and nothing
    else.
    """
    closed = find_closings(incident)
    told = {user_place(e.stack) for e in closed}
    everyone = incident.timeline.unseen == 0 and cut_off(incident) == set(incident.timeline.world)
    alone = all(e in closed for e in incident.capture.events if e.kind in FAILURES)
    return closed if everyone and alone and len(told) == 1 and None not in told else ()


def _runs_everywhere(group: ProcessGroup, ranks: tuple[int, ...], incident: Incident) -> bool:
    timeline = incident.timeline.of_group(group)
    tracks = [timeline.track(rank) for rank in ranks]
    return bool(tracks) and all(t and t.first_active and t.first_active.state is OpState.STARTED for t in tracks)
