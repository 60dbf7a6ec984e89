"""Incident -> readings of recorded calls that an expert would still consider. Replay tests them afterwards.

Each function looks at one situation: calls that do not match, ranks that are missing, a call that does not finish, a
ring.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from forkpoint.judge.facts.calls import may_be_reordered, may_differ_unseen, same_call_site, same_op
from forkpoint.judge.facts.cite import cite_divergence, cite_event, describe_slot, events_of, names_group
from forkpoint.judge.facts.late_ranks import find_came_at_last
from forkpoint.judge.facts.recorder_settings import starts_are_kept
from forkpoint.judge.facts.refusal import refused_sizes
from forkpoint.judge.facts.stacks import find_standings, is_waiting_for_ranks
from forkpoint.judge.facts.symptom import hang_is_shown, was_moving, without_dumps
from forkpoint.judge.hypotheses.asking import (
    Sides,
    ask_log,
    ask_stack,
    end_of_log,
    is_or_are,
    on_hosts,
    stack_of,
    what_is_lacking,
    who_is_meant,
    whom_to_ask,
)
from forkpoint.judge.hypotheses.candidates import (
    find_apart,
    find_missed_ranks,
    find_seen_in,
    find_seen_waiting,
    find_unheard,
)
from forkpoint.judge.hypotheses.repairs import find_replay, is_ring_in_flight, recorded_job, ring_sides
from forkpoint.judge.hypotheses.silence import MAX_SIDES
from forkpoint.model.frames import user_place
from forkpoint.model.headline import plain_place, plain_ranks
from forkpoint.model.incident import Divergence, Incident, PartingKind
from forkpoint.model.log import LogKind
from forkpoint.model.verdict import Cause, Hypothesis
from forkpoint.model.world import name_ranks


def read_calls(incident: Incident) -> Iterator[Hypothesis]:
    divergence = incident.divergence
    if divergence is None:
        return
    readings = list(_read(divergence, incident))
    closed = divergence.how is PartingKind.ABSENCE and _all_wait(divergence, incident)
    waits = divergence.how in (PartingKind.ABSENCE, PartingKind.STUCK) and not closed
    if (waits or is_ring_in_flight(divergence, incident)) and not hang_is_shown(incident):
        # People take stacks because a job stands still. Dumps alone are also taken of healthy jobs.
        late = len(readings) if without_dumps(incident) else 1 if incident.capture.stacks else 0
        first = _moved_between(divergence, incident) or was_moving(incident)
        readings.insert(0 if first else late, _in_flight(divergence, incident))
    readings[:0] = _stand_outside(divergence, incident)
    yield from readings


def _moved_between(divergence: Divergence, incident: Incident) -> bool:
    """Dumps and stacks show different moments: a rank that waits according to its dump is, according to its stack, in its own
    code, and so are the missing ranks. With NCCL this is no contradiction: the host continues while the GPU waits.
    """
    if any(trace.comm_lib != "gloo" for trace in incident.timeline.traces.values()):
        return False
    standings = {r: s for r, s in find_standings(incident).items() if not is_waiting_for_ranks(s.stack)}
    missed = [rank for side in find_missed_ranks(incident) for rank in side]
    places = {standings[rank].place for rank in divergence.sides[0] if rank in standings}
    return bool(missed) and all(r in standings and standings[r].place in places for r in missed)


def _stand_outside(divergence: Divergence, incident: Incident) -> list[Hypothesis]:
    """By their dumps ranks wait in a call; by their stacks they are in their own code while others wait: a rank that is stuck
    cannot write a dump, so the one that is there may be older. Not with NCCL: any line may wait for the GPU there.
    """
    if any(trace.comm_lib != "gloo" for trace in incident.timeline.traces.values()):
        return []
    standings = find_standings(incident)
    outside = tuple(
        r for r in sorted(divergence.sides[0]) if r in standings and not is_waiting_for_ranks(standings[r].stack)
    )
    others = [r for r in standings if r not in outside and is_waiting_for_ranks(standings[r].stack)]
    places = {user_place(standings[r].stack) for r in outside} - {None}
    if not places or not others or 2 * len(outside) > len(incident.timeline.world):
        return []
    where = f"at {', '.join(sorted(map(str, places))[:2])}"
    return [
        Hypothesis(
            Cause.HOST_STALL,
            outside,
            f"{name_ranks(outside)} {is_or_are(outside)} stuck {where}, and the dump is older than the stack",
            stack_of(outside, incident),
            supports=tuple(standings[r].evidence for r in (*outside[:2], *others[:2])),
            plain=f"{name_ranks(outside)} {is_or_are(outside)} stuck {where}",
            asks=ask_stack(outside, incident),
        )
    ]


def _read(divergence: Divergence, incident: Incident) -> Iterator[Hypothesis]:
    match divergence.how:
        case PartingKind.METADATA | PartingKind.VOLUME | PartingKind.MESSAGE:
            return _calls_differ(divergence, incident)
        case PartingKind.CYCLE:
            return _ring(divergence, incident)
        case PartingKind.ABSENCE:
            return _missed(divergence, incident)
        case PartingKind.STUCK:
            return _does_not_finish(divergence, incident)


def _in_flight(divergence: Divergence, incident: Incident) -> Hypothesis:
    return Hypothesis(
        Cause.HEALTHY,
        (),
        f"the job was healthy, and its dumps were taken in the middle of {describe_slot(divergence)}",
        "take the dumps again ten seconds later: do the numbers grow?",
        supports=cite_divergence(divergence, incident),
        divergence=divergence,
        asks="dumps taken ten seconds later",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Calls that do not match.


def _calls_differ(divergence: Divergence, incident: Incident) -> Iterator[Hypothesis]:
    slot, supports = describe_slot(divergence), cite_divergence(divergence, incident)
    named, sides = _named(divergence)
    who = who_is_meant(named, sides)
    print_it = f"print rank, operation, shape and line right before {slot} on {whom_to_ask(named, sides)}"
    path = Hypothesis(
        Cause.DIVERGENT_PATH,
        named,
        f"{who} took another path and made another call at {slot}",
        print_it,
        sides=sides,
        supports=supports,
        divergence=divergence,
        asks="printing the line and shape of that call on every rank",
    )
    arguments = replace(path, cause=Cause.METADATA_MISMATCH, says=f"{who} used other arguments at {slot}")
    fits = divergence.how is not PartingKind.METADATA or (
        same_op(divergence) and same_call_site(divergence) is not False
    )
    yield from (arguments, path) if fits and divergence.shift is None else (path, arguments)
    if divergence.how is PartingKind.METADATA and may_be_reordered(divergence, incident):
        yield replace(
            path,
            cause=Cause.ORDER_INVERSION,
            says=f"{who} made the same calls in another order from {slot} on",
            decides=f"log group and number of each call on {whom_to_ask(named, sides)}, and compare the order",
            asks="logging the order of calls on every rank",
        )


def _named(divergence: Divergence) -> tuple[tuple[int, ...], Sides]:
    """The odd ranks; if no vote tells who they are, the sides, the smallest first."""
    if divergence.odd:
        return tuple(sorted(divergence.odd)), ()
    return (), tuple(sorted((side for side in divergence.sides if side), key=lambda side: (len(side), side)))


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that wait for each other.


def _all_wait(divergence: Divergence, incident: Incident) -> bool:
    """Nobody knows who belongs to the group of this call, and every possible member is pending in another one: whoever is
    missing waits for those who wait for it.
    """
    present, waiting = set(divergence.sides[0]), {r for slot in recorded_job(incident).slots for r in slot.waiting}
    world = set(incident.timeline.world)
    return not divergence.group.declared and waiting >= world and world - present <= set(divergence.unknown)


def _ring(divergence: Divergence, incident: Incident) -> Iterator[Hypothesis]:
    slot, supports = describe_slot(divergence), cite_divergence(divergence, incident)
    named = tuple(sorted(divergence.odd)) if _would_open(divergence, incident) else ()
    anyone = (divergence.sides[0], *((rank,) for rank in divergence.unknown))[:MAX_SIDES]
    sides = () if named else ring_sides(divergence, recorded_job(incident)) if divergence.cycle else anyone
    who = who_is_meant(named, sides)
    path = Hypothesis(
        Cause.DIVERGENT_PATH,
        named,
        f"{who} skipped a call or made one more, so that ranks wait for each other at {slot} and elsewhere",
        f"log group and number of each call on {whom_to_ask(named, sides)}: is one missing or one too many?",
        sides=sides,
        supports=supports,
        divergence=divergence,
        asks="logging the order of calls on these ranks",
    )
    order = replace(
        path,
        cause=Cause.ORDER_INVERSION,
        says=f"{who} made the same calls in another order, so that ranks wait for each other at {slot} and elsewhere",
        decides=f"log group and number of each call on {whom_to_ask(named, sides)}, and compare the order",
    )
    yield from (path, order) if divergence.left_order else (order, path)
    if candidates := find_missed_ranks(incident):  # the ring may be a consequence of ranks without a dump
        path = _other_call(candidates, divergence, incident, known=False)
        yield from (h for h in (path, _away(candidates, divergence, incident)) if h)


def _would_open(divergence: Divergence, incident: Incident) -> bool:
    """The ring would have opened if only the odd ranks had acted differently."""
    named = tuple(sorted(divergence.odd))
    tried = (find_replay(c, named, divergence, incident) for c in (Cause.ORDER_INVERSION, Cause.DIVERGENT_PATH))
    return any(found is not None and found[1].explains for found in tried)


# ---------------------------------------------------------------------------------------------------------------------
# Ranks that are missing where others wait.


def _missed(divergence: Divergence, incident: Incident) -> Iterator[Hypothesis]:
    if _all_wait(divergence, incident):
        yield from _ring(divergence, incident)
        return
    candidates = find_missed_ranks(incident)
    slot, present = describe_slot(divergence), divergence.sides[0]
    known = {rank for side in candidates for rank in side} <= incident.timeline.positions.keys() and bool(candidates)
    waiting = find_seen_waiting(incident)
    idle = candidates if known else tuple(side for side in candidates if waiting.isdisjoint(side))
    path = _other_call(candidates, divergence, incident, known=known)
    away = _away(idle, divergence, incident) if idle else None
    unheard = bool(idle) and frozenset(rank for side in idle for rank in side) == find_unheard(incident)
    yield from _other_arguments(divergence, incident)
    yield from _came_at_last(divergence, incident)
    if len(divergence.sides) > 1 and len(present) < len(divergence.sides[1]):
        yield Hypothesis(
            Cause.DIVERGENT_PATH,
            present,
            f"{name_ranks(present)} made a call at {slot} that the others did not make",
            f"log group and number of each call on {name_ranks(present)}: is one too many?",
            supports=cite_divergence(divergence, incident),
            divergence=divergence,
            asks="logging the order of calls on these ranks",
        )
    away_first = (known and not find_apart(incident)) or unheard
    yield from (h for h in ((away, path) if away_first else (path, away)) if h)
    if not known and not find_apart(incident):  # no rank is seen outside the call: all may be in it
        yield from _does_not_finish(divergence, incident)


def _came_at_last(divergence: Divergence, incident: Incident) -> Iterator[Hypothesis]:
    """The dumps of these ranks are older than the call; whether they reached this one or a later one is open."""
    if (came := find_came_at_last(incident)) is None:
        return
    ranks = divergence.odd
    when = "when the others had given up there" if came.timeout_ms else "after its dump was written, perhaps too late"
    yield Hypothesis(
        Cause.STRAGGLER,
        ranks,
        f"{name_ranks(ranks)} came to {describe_slot(divergence)} {when}",
        f"the log of {name_ranks(ranks)}{on_hosts(ranks, incident)}: what did it do while the others waited?",
        supports=tuple(cite_event(e) for e in came.told[:3]),
        divergence=divergence,
        asks=ask_log(ranks, incident),
    )


def _other_arguments(divergence: Divergence, incident: Incident) -> Iterator[Hypothesis]:
    """Ranks without a dump whose log names this very call, with another operation or size than those who wait there."""
    waiting = next((c for c in divergence.cohorts if c.op and c.sizes), None)
    if waiting is None or divergence.channel:
        return
    size = sum(prod(one) for one in waiting.sizes)
    told = [
        e
        for rank in divergence.unknown
        for e in events_of(rank, incident, LogKind.WATCHDOG_TIMEOUT)
        if e.work is not None and e.work.seq == divergence.hang_seq and e.work.numel_in not in (None, size)
        if names_group(e, divergence.group)
    ]
    brought = told[0].work.numel_in if told and told[0].work else None
    alike = [e for e in told if e.work and e.work.numel_in == brought]
    ranks = tuple(sorted({e.rank for e in alike if e.rank is not None}))
    if ranks:
        slot = describe_slot(divergence)
        yield Hypothesis(
            Cause.METADATA_MISMATCH,
            ranks,
            f"{name_ranks(ranks)} passed {brought} elements to {slot}, {name_ranks(waiting.ranks)} {size}",
            f"the dump of {name_ranks(ranks)}{on_hosts(ranks, incident)} beside the others",
            alternatives=(Cause.DIVERGENT_PATH,),
            supports=(*(cite_event(e) for e in alike[:2]), *cite_divergence(divergence, incident)),
            divergence=divergence,
            asks=f"the dump of {name_ranks(ranks)}",
        )


def _away(candidates: Sides, divergence: Divergence, incident: Incident) -> Hypothesis:
    """They did not come: they died or are stuck."""
    named, sides = _one_or_sides(candidates)
    ranks = tuple(rank for side in candidates for rank in side)
    alive = set(ranks) <= incident.timeline.traces.keys()
    lost = frozenset(ranks) == find_unheard(incident)
    return Hypothesis(
        Cause.RANK_LOST if lost else Cause.HOST_STALL,
        named,
        f"{who_is_meant(named, sides)} {is_or_are(named)} stuck {'' if alive else 'or gone '}and did not reach {_slot_of(ranks, divergence)}",
        end_of_log(ranks, incident) if lost else stack_of(ranks, incident),
        alternatives=() if alive else (Cause.HOST_STALL,) if lost else (Cause.RANK_LOST,),
        sides=sides,
        supports=cite_divergence(divergence, incident),
        lacks=what_is_lacking(ranks, incident),
        divergence=divergence,
        asks=ask_log(ranks, incident) if lost else ask_stack(ranks, incident),
    )


def _slot_of(ranks: tuple[int, ...], divergence: Divergence) -> str:
    """Ranks outside the group are waited for by its members, in a call of another group."""
    return describe_slot(divergence) if _are_members(ranks, divergence) else "a call for which others wait"


def _at_slot(ranks: tuple[int, ...], divergence: Divergence) -> str:
    return f" at {describe_slot(divergence)}" if _are_members(ranks, divergence) else ""


def _are_members(ranks: tuple[int, ...], divergence: Divergence) -> bool:
    return set(ranks) <= set(divergence.channel or divergence.group.ranks)


def _other_call(candidates: Sides, divergence: Divergence, incident: Incident, *, known: bool) -> Hypothesis | None:
    """They made another call, or the same one with other arguments; or the waiting ranks did, if those may be the minority."""
    slots, apart = recorded_job(incident).slots, find_apart(incident)
    present = tuple(sorted({r for slot in slots for r in slot.waiting})) if apart and known else divergence.sides[0]
    either = (*candidates, present) if _may_be_fewer(present, divergence, incident, known=known) else candidates
    if not either:
        return None
    named, sides = _one_or_sides(either)
    ranks = tuple(rank for side in candidates for rank in side) or present
    shown = tuple(sorted(apart)) if apart == frozenset(ranks) else ()
    standings = find_standings(incident)
    return Hypothesis(
        Cause.DIVERGENT_PATH,
        named,
        f"{who_is_meant(named, sides)} made another call than the others{_at_slot(ranks, divergence)}"
        f"{'' if known else ', or the same with other arguments or in another order'}",
        stack_of(ranks, incident),
        alternatives=() if known else (Cause.METADATA_MISMATCH, Cause.ORDER_INVERSION),
        sides=sides,
        supports=(*(standings[rank].evidence for rank in shown[:2]), *cite_divergence(divergence, incident)),
        lacks=what_is_lacking(ranks, incident),
        divergence=divergence,
        plain=_tell_apart(shown, present, incident) if shown else "",
        asks=ask_stack(ranks, incident),
    )


def _may_be_fewer(present: tuple[int, ...], divergence: Divergence, incident: Incident, *, known: bool) -> bool:
    """The waiting ranks, plus those whose stacks are in the same call, may be no more than the missing ones."""
    apart = find_apart(incident)
    if known and not apart:
        return False
    here = (s for s in recorded_job(incident).slots if (s.group, s.seq) == (divergence.group, divergence.seq))
    too = {rank for slot in here for rank in find_seen_in(slot, incident)}
    return len(present) + len(too) <= len(apart | set(divergence.unknown) - too)


def _tell_apart(apart: tuple[int, ...], present: tuple[int, ...], incident: Incident) -> str:
    standings = find_standings(incident)
    places = {plain_place(standings[rank].stack) for rank in apart}
    where = f" (at {places.pop()})" if len(places) == 1 else ""
    return f"{plain_ranks(apart)}{where} made another call than {plain_ranks(present)}"


def _one_or_sides(candidates: Sides) -> tuple[tuple[int, ...], Sides]:
    return (candidates[0], ()) if len(candidates) == 1 else ((), candidates)


_SEE_GPUS = "`nvidia-smi dmon -s pucm` on the nodes of these ranks: a GPU at full power without traffic is in a kernel of its own"


def _does_not_finish(divergence: Divergence, incident: Incident) -> Iterator[Hypothesis]:
    """All members are in the call, as far as is known."""
    if divergence.channel is not None and divergence.unknown:
        return
    timed = starts_are_kept(incident)
    slot, supports = describe_slot(divergence), cite_divergence(divergence, incident)
    gloo = any(t.comm_lib == "gloo" for r, t in incident.timeline.traces.items() if r in divergence.group.ranks)
    if divergence.channel is None and (may_differ_unseen(divergence, incident) or refused_sizes(incident)):
        yield Hypothesis(
            Cause.METADATA_MISMATCH,
            (),
            f"all members reached {slot}, with roots or splits that differ (the recorder does not keep these)",
            f"print rank, root and splits right before {slot} on every member",
            supports=supports,
            divergence=divergence,
            asks="printing root and splits before the call on every rank",
        )
    if not gloo:
        yield Hypothesis(
            Cause.GPU_STALL,
            (),
            f"all members reached {slot}, and a GPU does not finish it",
            _SEE_GPUS
            if timed
            else "TORCH_NCCL_ENABLE_TIMING=1, then diagnose the new dumps: the rank that stays `scheduled` is the one",
            supports=supports,
            divergence=divergence,
            asks="what the GPUs of these ranks are doing" if timed else "dumps with TORCH_NCCL_ENABLE_TIMING=1",
        )
    on_sockets = "`ss -ti` on both hosts: does a connection have bytes that nobody acknowledges?"
    by_nccl = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET; all_reduce_perf of nccl-tests over the same nodes"
    yield Hypothesis(
        Cause.TRANSPORT,
        (),
        f"all members reached {slot}, and the network does not deliver",
        on_sockets if gloo else by_nccl,
        supports=supports,
        divergence=divergence,
        asks="`ss -ti` on both hosts" if gloo else "NCCL_DEBUG=INFO, or nccl-tests on the same nodes,",
    )
