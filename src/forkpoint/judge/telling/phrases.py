"""Phrases that headlines share: who waits for whom in which call, what a rank raised, which reading is likely."""

import re
from collections.abc import Collection

from forkpoint.judge.facts.blame import cut_off
from forkpoint.judge.facts.cite import verb
from forkpoint.judge.facts.stacks import find_standings, is_communicating
from forkpoint.model.headline import (
    first_sentence,
    is_quotable,
    plain_call,
    plain_place,
    plain_ranks,
    the_others,
    with_endings,
)
from forkpoint.model.incident import Cohort, Divergence, Incident, Role
from forkpoint.model.log import LogEvent
from forkpoint.model.verdict import Cause, Finding, Hypothesis

_PLACE = re.compile(r"\[(?:enforce fail at )?/[^\s\]]{1,300}:\d{1,6}\] ?")

# ---------------------------------------------------------------------------------------------------------------------
# Who waits for whom, in which call.


def others(ranks: Collection[int], apart: Collection[int], incident: Incident) -> str:
    """`the other 7`, or their numbers if these are not all."""
    world = incident.timeline.world if incident.timeline.world_known else ()
    return the_others(ranks, apart, world)


def call_of(cohort: Cohort, incident: Incident) -> str:
    """`all_reduce at train.py:40`; `all_reduce` if no line of the user's code made it."""
    place = place_of_call(cohort, incident)
    return f"{plain_call(cohort.op)} at {place}" if place else plain_call(cohort.op)


def place_of_call(cohort: Cohort, incident: Incident) -> str | None:
    """If the recorder kept no stack: the line at which all its ranks are seen in a call of that name."""
    if cohort.stack:
        return plain_place(cohort.stack)
    standings, call = find_standings(incident), plain_call(cohort.op)
    seen = [standings[rank] for rank in cohort.ranks if rank in standings]
    places = {plain_place(s.stack) for s in seen}
    inside = all(is_communicating(s.stack) and plain_call(s.called) == call for s in seen)
    return places.pop() if inside and len(places) == 1 else None


def waiting(divergence: Divergence | None, apart: Collection[int]) -> tuple[Cohort, ...]:
    """The ranks in the call, except `apart`; the largest cohort first."""
    cohorts = divergence.cohorts if divergence else ()
    found = [c for c in cohorts if c.op and c.role is Role.WAITING and set(c.ranks).isdisjoint(apart)]
    return tuple(sorted(found, key=lambda c: -len(c.ranks)))


def wait_for(divergence: Divergence | None, apart: Collection[int], incident: Incident) -> tuple[str, ...]:
    """Endings: `; the other 7 wait for it in all_reduce`, ` (train.py:25)`."""
    found = waiting(divergence, apart)
    if not found:
        return ()
    ranks = [rank for cohort in found for rank in cohort.ranks]
    place = place_of_call(found[0], incident)
    calls = {plain_call(cohort.op) for cohort in found}
    within = f" in {calls.pop()}" if len(calls) == 1 else ""
    return (f"; {they_wait(ranks, apart, incident)}{within}", *([f" ({place})"] if place and len(found) == 1 else []))


def they_wait(ranks: Collection[int], apart: Collection[int], incident: Incident) -> str:
    """`the other 7 wait for it`."""
    return f"{others(ranks, apart, incident)} {waits(ranks, incident)} for {verb(apart, 'it', 'them')}"


def waits(ranks: Collection[int], incident: Incident) -> str:
    """`wait`; `waited` if their connection has been closed."""
    return "waited" if cut_off(incident) & set(ranks) else verb(ranks, "waits", "wait")


def everyone(divergence: Divergence, incident: Incident) -> str:
    """`all 4 ranks`, if all ranks of the job are members."""
    ranks = divergence.sides[0] if divergence.sides else divergence.group.ranks
    whole = incident.timeline.world_known and set(ranks) == set(incident.timeline.world)
    return f"all {len(ranks)} ranks" if whole and len(ranks) > 1 else plain_ranks(ranks)


def shared_call(divergence: Divergence, incident: Incident) -> str:
    """The call that all are in: `all_reduce (train.py:22)`."""
    first = next((c for c in divergence.cohorts if c.op), None)
    place = place_of_call(first, incident) if first else None
    return f"{plain_call(first.op if first else None)}{f' ({place})' if place else ''}"


# ---------------------------------------------------------------------------------------------------------------------
# What ranks log themselves.


def raised(event: LogEvent) -> tuple[str, ...]:
    """`KeyError ("'fr'")`, then `KeyError` alone."""
    text = first_sentence(without_place(event.text))
    kind = (
        (event.exception or event.detail("class") or text)
        .replace("::", ".")
        .partition(":")[0]
        .rpartition(".")[2]
        .strip()
    )
    name = kind if kind.isidentifier() else "an exception"
    said = text.partition(": ")[2].strip()
    return (f'{name} ("{said}")', name) if said and is_quotable(said) else (name,)


def without_place(text: str) -> str:
    """Without the source location of a library in front of the message."""
    return _PLACE.sub("", text)


def got_other_size(events: Collection[LogEvent]) -> str:
    """For ranks whose library refused what a peer sent."""
    ranks = sorted({e.rank for e in events if e.rank is not None})
    who, they = plain_ranks(ranks) if ranks else "a rank", "they" if len(ranks) > 1 else "it"
    return f"{who} got data of another size than {they} expected"


# ---------------------------------------------------------------------------------------------------------------------
# What can always be said: the cause, and the ranks as numbers.

_DID = {
    Cause.DIVERGENT_PATH: ("left the path of the others", "ranks took different paths"),
    Cause.ORDER_INVERSION: ("made the same calls in another order", "ranks made the same calls in different orders"),
    Cause.METADATA_MISMATCH: (
        "made a call with other arguments than the others",
        "ranks made one call with arguments that do not match",
    ),
    Cause.HOST_STALL: ("did not reach the call in which the others wait", "ranks are stuck on their hosts"),
    Cause.GPU_STALL: ("waits for work on its GPU", "a GPU does not finish its work"),
    Cause.TRANSPORT: ("cannot reach its peers", "all ranks are in one call, and the network does not deliver"),
    Cause.RANK_LOST: ("is gone", "a rank is gone"),
    Cause.NEVER_JOINED: ("never joined the job", "not all ranks joined the job"),
    Cause.STRAGGLER: ("was later than the timeout allows", "a rank was later than the timeout allows"),
    Cause.SILENT_CORRUPTION: ("held other values than its replicas", "replicas that must be equal are not"),
    Cause.HEALTHY: ("", "nothing wrong was found"),
    Cause.INCONCLUSIVE: ("", "the evidence does not decide what went wrong"),
}
_MANY = {
    Cause.GPU_STALL: "wait for work on their GPUs",
    Cause.TRANSPORT: "cannot reach their peers",
    Cause.RANK_LOST: "are gone",
    Cause.SILENT_CORRUPTION: "held other values than their replicas",
}


def barest(cause: Cause, suspects: tuple[int, ...]) -> str:
    one, nobody = _DID[cause]
    if not suspects or not one:
        return nobody
    done = _MANY.get(cause, one) if len(suspects) > 1 else one
    return f"{plain_ranks(suspects)} {done}"


# ---------------------------------------------------------------------------------------------------------------------
# For undecided verdicts: what is seen, the best reading, and what would decide.

MOST_LIKELY = "most likely "
_MAX_SIDES = 3
_PERHAPS = {
    Cause.DIVERGENT_PATH: "made another call than the others",
    Cause.ORDER_INVERSION: "made the same calls in another order",
    Cause.METADATA_MISMATCH: "used another size, root or split",
    Cause.HOST_STALL: "is stuck on its host",
    Cause.RANK_LOST: "is gone",
    Cause.NEVER_JOINED: "never joined the job",
    Cause.STRAGGLER: "came late",
    Cause.SILENT_CORRUPTION: "computed wrong values",
}
_PERHAPS_MANY = {
    Cause.HOST_STALL: "are stuck on their hosts",
    Cause.RANK_LOST: "are gone",
}
_NOBODY = {
    Cause.HEALTHY: "nothing is wrong, or what failed left no trace",
    Cause.TRANSPORT: "the network does not deliver",
    Cause.GPU_STALL: "a GPU does not finish it",
    Cause.METADATA_MISMATCH: "roots, splits or sizes differ between ranks",
    Cause.ORDER_INVERSION: "ranks make the same calls in different orders",
}


def tell_reading(reading: Hypothesis) -> str:
    """`rank 2 or rank 3 made another call than the others`."""
    if reading.plain:
        return reading.plain
    if not reading.suspects and not reading.sides and reading.cause in _NOBODY:
        return _NOBODY[reading.cause]
    sides = reading.sides or ((reading.suspects,) if reading.suspects else ())
    who = " or ".join(plain_ranks(side) for side in sides) if 0 < len(sides) <= _MAX_SIDES else "a rank"
    plural = len(sides) == 1 and len(sides[0]) > 1
    done = _PERHAPS_MANY.get(reading.cause) if plural else None
    if reading.cause is Cause.DIVERGENT_PATH and Cause.METADATA_MISMATCH in reading.alternatives:
        done = "made another call or used other sizes"
    return f"{who} {done or _PERHAPS.get(reading.cause, _NOBODY.get(reading.cause, 'failed'))}"


def undecided_headlines(finding: Finding, readings: tuple[Hypothesis, ...]) -> tuple[str, ...]:
    """What is seen; what is most likely; what would decide. If that is too long, without what is seen. A reading that
    itself says how likely it is stays unchanged.
    """
    first = next(iter(readings), None)
    whole = tuple(told for told in finding.headlines if told.startswith(MOST_LIKELY))
    unknown = (
        "no failure is seen" if first is not None and first.cause is Cause.HEALTHY else barest(Cause.INCONCLUSIVE, ())
    )
    seen = [*(told for told in finding.headlines if told not in whole), unknown]
    if first is None:
        why = ", and the evidence does not decide why" if finding.divergence else ""
        return tuple(f"{state}{why}" for state in finding.headlines)
    decides = (f"; {first.asks} would decide",) if first.asks else ()
    if first.cause is Cause.HEALTHY and first.divergence is not None:
        return tuple(f"{state}, most likely in the middle of a healthy step{''.join(decides)}" for state in seen)
    likely = f"{MOST_LIKELY}{tell_reading(first)}"
    return (
        *(text for told in whole for text in with_endings(told, *decides)),
        *(f"{state}: {likely}{end}" for state in seen for end in decides),
        *with_endings(likely, *decides),
    )
