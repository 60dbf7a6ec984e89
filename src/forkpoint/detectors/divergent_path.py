"""Ranks took different control flow: one side skipped, added or replaced a collective, or left the loop.

What it looks like
    At one slot the members of a group issued different operations, or the same operation from different lines; or one
    side's ops are those of the others a few slots off; or a rank raised in its own code and left while others wait; or
    ranks had issued different numbers of calls by the end of the same training step, where steps are told. gloo ends a
    rank that gets more bytes than it waits for: its log then says in which line it stood, and the others' dumps that
    they were elsewhere. A rank may also wait in the call of an `except` or `finally`; its log tells which exception led
    it there.

Why it happens
    A branch, a loop count or an exception that depends on the rank or on its local data: a rank-0-only metric that
    reduces, an early stop on a local loss, uneven batches, a swallowed exception.

What rules it out
    The same calls in another order (order-inversion). The same line with other sizes (metadata-mismatch). A rank that
    only has not come yet, with its ops in step so far (host-stall). A process that was killed (rank-lost).

Fix
    Make the decision on all ranks alike: reduce or broadcast the condition before the branch, move the collective out
    of it, agree on the number of steps, and let one rank's exception stop all.
"""

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.detectors.cite import (
    cite_divergence,
    cite_event,
    cite_stack,
    describe_slot,
    live_stack,
)
from forkpoint.detectors.confidence import DECIDED, LIKELY, STRONG
from forkpoint.detectors.departures import Departed, Departure, cut_off, find_departed, missing_from
from forkpoint.detectors.handling import Handling, find_handling
from forkpoint.detectors.refusal import Refused, find_refusal
from forkpoint.detectors.same_call import (
    holds_past,
    is_reordered,
    issuing,
    may_be_reordered,
    same_call_site,
    same_op,
)
from forkpoint.detectors.stalls import is_communicating
from forkpoint.detectors.steps import find_step_parting
from forkpoint.model.divergence import Divergence, PartingKind
from forkpoint.model.frames import user_place
from forkpoint.model.incident import Incident
from forkpoint.model.ranks import name_ranks
from forkpoint.model.verdict import Action, Cause, Finding, Fix, Probe
from forkpoint.symptom import hang_is_shown

NAME = "divergent-path"


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    handling = find_handling(divergence, incident) if divergence is not None else ()
    if divergence is not None and handling:
        yield _led_aside(divergence, handling, incident)
    elif divergence is not None and _is_other_path(divergence, incident):
        yield _finding(divergence, divergence.odd, _tell(divergence, incident), _confidence(divergence), incident)
    elif divergence is None and (steps := find_step_parting(incident)):
        finding = _finding(None, steps.odd, steps.told, STRONG if steps.odd else LIKELY, incident)
        yield replace(finding, evidence=steps.evidence)
    elif (refusal := find_refusal(incident)) and refusal.how is Refused.PATH:
        told = f"at {describe_slot(refusal.divergence)} {refusal.told_places}; {refusal.told}"
        finding = _finding(refusal.divergence, refusal.divergence.odd, told, refusal.confidence, incident)
        yield replace(finding, evidence=(*refusal.evidence, *finding.evidence))
    else:
        yield from _left_by_itself(divergence, incident)


def _is_other_path(divergence: Divergence, incident: Incident) -> bool:
    match divergence.how:
        case PartingKind.METADATA:
            other_call = not same_op(divergence) or same_call_site(divergence) is False or divergence.shift is not None
            may_be_order = not holds_past(divergence, incident) and may_be_reordered(divergence, incident)
            return other_call and not may_be_order and not is_reordered(divergence, incident)
        case PartingKind.MESSAGE:
            return divergence.shift is not None
        case PartingKind.ABSENCE:
            elsewhere = _one_too_many(divergence) or _is_elsewhere(divergence, incident)
            return divergence.shift is not None or (elsewhere and hang_is_shown(incident))
        case PartingKind.CYCLE:
            return divergence.left_order
        case _:
            return False


def _led_aside(divergence: Divergence, handling: tuple[Handling, ...], incident: Incident) -> Finding:
    """Ranks that wait in an `except` or `finally` while the others are still where the exception was raised."""
    first = handling[0]
    told = (
        f"rank {first.rank} raised {first.raised.text}{_from(user_place(first.raised.stack))}, and while it handled that "
        f"it went on to {user_place(first.ended.stack)}; the others are still at {describe_slot(divergence)}"
    )
    named = replace(divergence, odd=tuple(h.rank for h in handling))
    finding = _finding(named, named.odd, told, DECIDED, incident)
    said = tuple(cite_event(event) for h in handling[:2] for event in (h.raised, h.ended))
    return replace(finding, evidence=(*said, *finding.evidence))


def _one_too_many(divergence: Divergence) -> bool:
    return bool(divergence.odd) and divergence.odd == divergence.sides[0]


def _is_elsewhere(divergence: Divergence, incident: Incident) -> bool:
    """The absent rank stands in another communication call, one that the recorder does not see."""
    stacks = [live_stack(r, incident) for r in divergence.odd]
    return bool(stacks) and all(s is not None and is_communicating(s.stack) for s in stacks)


def _tell(divergence: Divergence, incident: Incident) -> str:
    odd = name_ranks(divergence.odd) if divergence.odd else "some ranks"
    slot = describe_slot(divergence)
    if divergence.shift:
        return f"{_tell_shift(divergence, odd)} at {slot}; results are silently wrong from there on: calls pair with others"
    calls = [
        f"{name_ranks(c.ranks)} {c.op} {_sizes(c.sizes)}{_from(user_place(c.stack))}" for c in issuing(divergence)[:3]
    ]
    if divergence.how is PartingKind.METADATA:
        return f"at {slot} ranks are on different paths: {'; '.join(calls)}"
    if divergence.how is PartingKind.CYCLE and not divergence.odd:
        return f"ranks wait for each other at {slot} and elsewhere: one side skipped a call or made one more, not in another order"
    if divergence.how is PartingKind.CYCLE:
        return f"{odd} left the usual order: it did not issue {slot}, where others wait for it, and waits for them elsewhere"
    if _one_too_many(divergence):
        return f"{odd} issued a collective at {slot} that the others do not: {'; '.join(calls)}"
    stack = live_stack(divergence.odd[0], incident)
    return (
        f"{odd} is in another call ({user_place(stack.stack) if stack else 'unknown'}) while the others wait at {slot}"
    )


def _tell_shift(divergence: Divergence, odd: str) -> str:
    shift = divergence.shift
    assert shift is not None  # the caller has looked
    what = "message" if divergence.channel else "call"
    count = abs(shift.by)
    return f"{odd} {'skipped' if shift.by > 0 else 'issued'} {count} {what}{'s' if count > 1 else ''}{'' if shift.by > 0 else ' more'}"


def _sizes(sizes: tuple[tuple[int, ...], ...]) -> str:
    return str([list(s) for s in sizes[:3]])


def _from(place: str | None) -> str:
    return f" from {place}" if place else ""


def _confidence(divergence: Divergence) -> float:
    if divergence.shift is not None or (divergence.odd and same_call_site(divergence) is False):
        return DECIDED
    return STRONG if divergence.odd else LIKELY


def _left_by_itself(divergence: Divergence | None, incident: Incident) -> Iterator[Finding]:
    """A rank whose code raised or ended, and that is not in the slot where the others wait."""
    if divergence is not None and divergence.how is not PartingKind.ABSENCE:
        return
    missing = missing_from(divergence, incident)
    departed = [d for d in find_departed(incident) if d.rank in missing]
    gone = [d for d in departed if d.how is Departure.RAISED]
    left = [d for d in departed if d.how is Departure.LEFT]
    ended = {d.rank for d in left}
    waiting = divergence is not None and hang_is_shown(incident) and ended >= set(divergence.unknown)
    if waiting or cut_off(incident) >= set(incident.timeline.world) - ended:
        gone += left  # an end in order is only odd where all the others are seen to wait, or to have lost a connection
    if not gone or 2 * len(gone) >= len(incident.timeline.world):
        return
    where = f"; the others wait for it at {describe_slot(divergence)}" if divergence else ""
    summary = f"{'; '.join(_tell_departure(d) for d in gone[:2])}{where}"
    finding = _finding(divergence, tuple(d.rank for d in gone), summary, STRONG if divergence else LIKELY, incident)
    events = tuple(cite_event(d.event) for d in gone if d.event)
    yield replace(finding, evidence=(*events, *finding.evidence))


def _tell_departure(departed: Departed) -> str:
    if departed.how is Departure.RAISED and departed.event:
        return f"rank {departed.rank} raised {departed.event.text}{_from(user_place(departed.event.stack))} and left"
    return f"rank {departed.rank} ended its program"


def _finding(
    divergence: Divergence | None, suspects: tuple[int, ...], summary: str, confidence: float, incident: Incident
) -> Finding:
    stacks = tuple(cite_stack(s) for r in suspects[:2] if (s := live_stack(r, incident)))
    return Finding(
        detector=NAME,
        cause=Cause.DIVERGENT_PATH,
        suspects=tuple(sorted(suspects)),
        confidence=confidence,
        summary=summary,
        action=Action.FIX_CODE,
        evidence=(*(cite_divergence(divergence, incident) if divergence else ()), *stacks),
        divergence=divergence,
        probes=(Probe("print rank, step and the branch condition on every rank right before the call that differs"),),
        fixes=(
            Fix("decide alike on all ranks: all_reduce or broadcast the condition before the branch"),
            Fix("move the collective out of the branch, so that every rank issues it"),
        ),
    )
