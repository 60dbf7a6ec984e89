"""All entered, and the network, NVLink or NIC does not deliver.

What it looks like
    All members issued the same op and it does not finish, and a log has a network error *before* the timeout; or start
    events show it running on every member.

Why it happens
    A link, switch or NIC that drops, a firewall, a wrong interface, an InfiniBand port that went down.

What rules it out
    A member that is gone (rank-lost): its connections close too. Network errors only after the timeout: taking ranks
    down closes connections. A member that has not started (gpu-stall).

Fix
    Retry on other nodes; test the pair with nccl-tests; look at the port's counters.
"""

from collections.abc import Iterator

from forkpoint.detectors.cite import cite_divergence, cite_event, describe_slot, group_of
from forkpoint.detectors.confidence import LIKELY, STRONG
from forkpoint.detectors.departures import missing_from
from forkpoint.detectors.network import network_events
from forkpoint.model.divergence import Divergence, PartingKind
from forkpoint.model.incident import Incident
from forkpoint.model.op import OpState
from forkpoint.model.verdict import Action, Cause, Finding, Fix, Probe

NAME = "transport"


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    if divergence is None or divergence.how is not PartingKind.STUCK or missing_from(divergence, incident):
        return
    events = network_events(incident)
    running = _runs_everywhere(divergence, incident)
    if not events and not running:
        return
    seen = "the logs have a network error before the timeout" if events else "it was running on every member"
    yield Finding(
        detector=NAME,
        cause=Cause.TRANSPORT,
        suspects=(),
        confidence=STRONG if events else LIKELY,
        summary=f"all members issued {describe_slot(divergence)} alike and it does not finish; {seen}",
        action=Action.REPLACE_OR_RETRY,
        evidence=(*(cite_event(e) for e in events[:4]), *cite_divergence(divergence, incident)),
        divergence=divergence,
        probes=(Probe("all_reduce_perf of nccl-tests over the same nodes, then over halves of them"),),
        fixes=(Fix("leave out the node whose port reports errors; retry"),),
        next=("ibstat; perfquery on each node", "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET"),
    )


def _runs_everywhere(divergence: Divergence, incident: Incident) -> bool:
    group = group_of(divergence, incident) if divergence.channel is None else None
    tracks = [group.track(r) for r in divergence.sides[0]] if group else []
    return bool(tracks) and all(t and t.first_active and t.first_active.state is OpState.STARTED for t in tracks)
