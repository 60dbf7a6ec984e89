"""The same operations in another order, within a group or across groups.

What it looks like
    Within a group: from one slot on, both sides issued the same calls, permuted. Across groups: ranks wait for each
    other in a ring, each in a group (or channel) that the next has not reached. Two threads issue calls in one group, and
    one rank was at one thread's call while the others were at the other's. Calls of DDP's reducer have no stack: they do not
    count as calls of a thread that the program started.

Why it happens
    Iterating over a set or dict whose order differs by process, hooks that fire in another order, two groups used in
    opposite order, send and recv that both sides start with the same half, two threads that nothing synchronises.

What rules it out
    One side's calls are the other's shifted by some slots (divergent-path). Only one side's call exists at all: the others
    finished their round without it. A rank that an exception led to its call. A thread from which only one side has
    ever called, and calls that both sides make outside such threads (divergent-path).

Fix
    Sort what is iterated over; give all ranks one order of groups; use batch_isend_irecv for crossing messages. Give a thread
    a process group of its own.
"""

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.diverge.cohorts import unrecorded_divergence
from forkpoint.evidence.stacks.shapes import find_last_call
from forkpoint.judge.facts.calls import is_of_two_threads, is_reordered, shares_group_with_thread
from forkpoint.judge.facts.cite import DECIDED, LIKELY, cite_divergence, cite_event, describe_slot
from forkpoint.judge.facts.handling import find_handling
from forkpoint.judge.facts.refusal import Refused, find_refusal, refused_sizes
from forkpoint.judge.facts.stacks import find_all_standings, find_standings
from forkpoint.judge.facts.symptom import hang_is_shown
from forkpoint.judge.hypotheses.seen_in_calls import find_odd_in_ring
from forkpoint.judge.telling.phrases import got_other_size, shared_call
from forkpoint.model.frames import bare_name
from forkpoint.model.headline import plain_place, plain_ranks, with_endings
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind, Role
from forkpoint.model.timeline import Position
from forkpoint.model.verdict import Action, Cause, Evidence, Finding, Fix, Probe
from forkpoint.model.world import name_ranks

NAME = "order-inversion"
_SHOWN = 4
_PAIR = 2
_THREADS = "two threads use one group, and nothing keeps their calls in the same order on all ranks"

_OWN_GROUP = Fix("give the thread a process group of its own (new_group on all ranks), or call from one thread only")


def find(incident: Incident) -> Iterator[Finding]:
    refusal = find_refusal(incident)
    if refusal is not None and refusal.how is Refused.THREADS:
        summary = f"two threads issue calls in {refusal.divergence.group} and nothing orders them: {refusal.told}"
        finding = replace(_finding(refusal.divergence, incident, summary, refusal.confidence), fixes=(_OWN_GROUP,))
        yield replace(
            finding,
            evidence=(*refusal.evidence, *finding.evidence),
            headlines=with_endings(
                _THREADS, f"; rank {refusal.stack.rank} got data of another call, and gloo ended it"
            ),
        )
    divergence = incident.divergence
    if divergence is None:
        yield from _all_send(incident)
        yield from _in_own_order(incident)
        return
    if divergence.how is PartingKind.METADATA and is_reordered(divergence, incident):
        sides = " and ".join(name_ranks(side) for side in divergence.sides[:2])
        summary = f"{sides} issue the same operations in different orders from {describe_slot(divergence)} on"
        finding = _finding(divergence, incident, summary, DECIDED)
        place = next((p for c in divergence.cohorts if (p := plain_place(c.stack))), None)
        who = plain_ranks([rank for side in divergence.sides for rank in side])
        main = f"{who} make the same calls in different orders"
        yield replace(finding, headlines=with_endings(main, f", from {place} on" if place else ""))
    elif divergence.how is PartingKind.METADATA and is_of_two_threads(divergence, incident):
        summary = f"two threads issue calls in {divergence.group}, and nothing puts them in order: {describe_slot(divergence)} differs"
        places = dict.fromkeys(p for c in divergence.cohorts if (p := plain_place(c.stack)))
        finding = replace(_finding(divergence, incident, summary, LIKELY), fixes=(_OWN_GROUP,))
        yield replace(finding, headlines=with_endings(_THREADS, f" ({' and '.join(places)})" if places else ""))
    elif (
        divergence.how is PartingKind.STUCK
        and hang_is_shown(incident)
        and shares_group_with_thread(divergence, incident)
    ):
        summary = f"two threads issue calls in {divergence.group}, and nothing puts them in order: {describe_slot(divergence)} does not finish"
        finding = replace(_finding(divergence, incident, summary, LIKELY), fixes=(_OWN_GROUP,))
        yield replace(
            finding, headlines=with_endings(_THREADS, f"; {shared_call(divergence, incident)} does not finish")
        )
    elif divergence.how is PartingKind.CYCLE and _is_inversion(divergence, incident):
        ring = " -> ".join(f"rank {r} ({_place(_first(r, incident))})" for r in divergence.cycle[:_SHOWN])
        more = " -> ..." if len(divergence.cycle) > _SHOWN else ""
        summary = f"ranks wait for each other in a ring: {ring}{more} -> rank {divergence.cycle[0]}"
        named = replace(divergence, odd=divergence.odd or find_odd_in_ring(divergence, incident))
        finding = _finding(named, incident, summary, LIKELY)
        yield replace(finding, headlines=_ring_headlines(divergence, incident))


def _all_send(incident: Incident) -> Iterator[Finding]:
    """Every rank is in a blocking send and none receives: no message can be received."""
    standings = find_all_standings(incident)
    inside = [{bare_name(frame) for frame in find_last_call(one.stack)} for one in standings.values()]
    if len(inside) < _PAIR or not all("send" in names for names in inside) or not hang_is_shown(incident):
        return
    place = next((p for one in standings.values() if (p := plain_place(one.stack))), None)
    summary = "every rank waits in a blocking send, and none is left to receive"
    yield Finding(
        detector=NAME,
        cause=Cause.ORDER_INVERSION,
        suspects=(),
        confidence=LIKELY,
        summary=summary,
        action=Action.FIX_CODE,
        evidence=tuple(one.evidence for one in standings.values())[:_SHOWN],
        probes=(Probe("print rank, peer and direction right before each send and receive"),),
        fixes=(Fix("let one of two neighbours receive first, or use batch_isend_irecv for messages that cross"),),
        headlines=with_endings(summary, f" ({place})" if place else ""),
    )


def _in_own_order(incident: Incident) -> Iterator[Finding]:
    """A library refused a size, and all ranks that are seen were in a loop whose order, by the source, differs between processes."""
    refused, standings = refused_sizes(incident), find_standings(incident)
    inside = [one for one in standings.values() if one.place in incident.capture.source.own_order]
    if not refused or not inside or len(inside) < len(standings):
        return
    place = plain_place(inside[0].stack)
    at = f" at {place}" if place else ""
    summary = f"ranks make the call{at} once for each element of something whose order differs between processes"
    yield Finding(
        detector=NAME,
        cause=Cause.ORDER_INVERSION,
        suspects=(),
        confidence=LIKELY,
        summary=f"{summary}; {got_other_size(refused)}, and the library refused it",
        action=Action.FIX_CODE,
        evidence=(*map(cite_event, refused[:2]), *(one.evidence for one in inside[:2])),
        divergence=unrecorded_divergence(
            PartingKind.METADATA,
            (Cohort(tuple(one.rank for one in inside), Role.WAITING, inside[0].called, stack=inside[0].stack),),
            ranks=incident.timeline.world,
        ),
        probes=(Probe("print the order of the elements on every rank right before the loop"),),
        fixes=(Fix("iterate over `sorted(...)`, so that all ranks use one order"),),
        headlines=with_endings(
            f"ranks make the calls{at} in different orders", "; the loop's order differs between processes"
        ),
    )


def _ring_headlines(divergence: Divergence, incident: Incident) -> tuple[str, ...]:
    """For two ranks, the group in which each waits; for more, that they wait in a circle."""
    ring = divergence.cycle
    why = "; they use the groups in different orders"
    if len(ring) == _PAIR:
        one, other = ((rank, _first(rank, incident)) for rank in ring)
        main = (
            f"rank {one[0]} waits in {_plainly(one[1])} and rank {other[0]} in {_plainly(other[1])}, each for the other"
        )
        return with_endings(main, why)
    places = dict.fromkeys(p for rank in ring if (p := plain_place(_first(rank, incident).op.stack)))
    at = f" ({' and '.join(places)})" if 0 < len(places) <= _PAIR else ""
    main = f"{plain_ranks(ring)} wait in a circle, each for the next, in different groups"
    return (*with_endings(f"{main}{at}", why), *with_endings(main, why))


def _plainly(position: Position) -> str:
    """`group grads (train.py:16)`."""
    place = plain_place(position.op.stack)
    where = f"a message {position.channel[0]}->{position.channel[1]}" if position.channel else _group(position)
    return f"{where}{f' ({place})' if place else ''}"


def _group(position: Position) -> str:
    name = str(position.group)
    if name == "default_pg":
        return "the default group"
    return name if name.startswith("group ") else f"group {name}"


def _is_inversion(divergence: Divergence, incident: Incident) -> bool:
    left = divergence.left_order or find_handling(divergence, incident)
    return not left and (divergence.is_permuted or _past_is_known(divergence, incident))


def _past_is_known(divergence: Divergence, incident: Incident) -> bool:
    """A skipped op makes a ring too; dumps that hold only active ops, or no stacks, cannot tell the two apart."""
    traces = [incident.timeline.traces[r] for r in divergence.cycle]
    return all(t.has_stacks and not t.is_partial and (t.from_start or t.recent_records.size) for t in traces)


def _first(rank: int, incident: Incident) -> Position:
    return incident.timeline.positions[rank][0]


def _place(position: Position) -> str:
    if position.channel:
        return f"{position.op.signatures[0].op} {position.channel[0]}->{position.channel[1]}"
    return f"{position.group} seq {position.op.seq}"


def _finding(divergence: Divergence, incident: Incident, summary: str, confidence: float) -> Finding:
    return Finding(
        detector=NAME,
        cause=Cause.ORDER_INVERSION,
        suspects=tuple(sorted(divergence.odd)),
        confidence=confidence,
        summary=summary,
        action=Action.FIX_CODE,
        evidence=(*cite_divergence(divergence, incident), *_cite_ring(divergence, incident)),
        divergence=divergence,
        probes=(Probe("log group and seq before each collective on the ranks named, and compare the order"),),
        fixes=(Fix("use one order on all ranks: sort the keys or parameters, and the groups, before communicating"),),
    )


def _cite_ring(divergence: Divergence, incident: Incident) -> tuple[Evidence, ...]:
    cited: list[Evidence] = []
    for rank in divergence.cycle[:_SHOWN]:
        stands = _first(rank, incident)
        file = incident.timeline.traces[rank].file
        cited.append(Evidence(file, rank, f"entry {stands.op.record_id}", f"rank {rank} waits in {_place(stands)}"))
    return tuple(cited)
