"""Headlines for ranks that took another path: a call skipped, added or replaced, an exception, an exit."""

from forkpoint.judge.facts.blame import cut_off
from forkpoint.judge.facts.calls import issuing, pairs_wrongly, went_without
from forkpoint.judge.facts.cite import describe_slot, live_stack, verb
from forkpoint.judge.facts.departures import Departed, Departure
from forkpoint.judge.facts.handling import Handling
from forkpoint.judge.facts.own_ways import LoneCaller
from forkpoint.judge.facts.refusal import Refusal
from forkpoint.judge.facts.refused_apart import RefusedApart
from forkpoint.judge.facts.stacks import PartedStacks
from forkpoint.judge.telling.phrases import call_of, others, place_of_call, raised, wait_for, waiting
from forkpoint.model.frames import user_place
from forkpoint.model.headline import UNKNOWN_CALL, definite, plain_call, plain_place, plain_ranks, with_endings
from forkpoint.model.incident import Cohort, Divergence, Incident, PartingKind, Role, Shift
from forkpoint.model.world import name_ranks


def tell_parting(divergence: Divergence, incident: Incident) -> tuple[str, ...]:
    """From recorded calls."""
    odd, them = divergence.odd, verb(divergence.odd, "it", "them")
    if divergence.shift:
        return _tell_shift(divergence, incident)
    if divergence.how is PartingKind.METADATA:
        return tell_calls(divergence, odd, incident)
    if odd and odd == divergence.sides[0]:
        own = next(c for c in divergence.cohorts if set(c.ranks) & set(odd))
        return (f"{plain_ranks(odd)} called {call_of(own, incident)}, and the others never made that call",)
    if divergence.how is PartingKind.CYCLE:
        return _tell_ring(divergence, incident)
    stack = live_stack(odd[0], incident)
    place = plain_place(stack.stack) if stack else None
    main = (
        f"{plain_ranks(odd)} {verb(odd, 'is', 'are')} in another call{f' ({place})' if place else ''} than the others"
    )
    present = waiting(divergence, odd)
    if not present:
        return (main,)
    ranks = present[0].ranks
    missed = f", and {others(ranks, odd, incident)} {verb(ranks, 'waits', 'wait')} for {them} in {call_of(present[0], incident)}"
    return with_endings(main, missed)


def tell_calls(divergence: Divergence, odd: tuple[int, ...], incident: Incident) -> tuple[str, ...]:
    cohorts = issuing(divergence)
    # The odd ranks may belong to several groups, of which this is one.
    own = next((c for c in cohorts if set(c.ranks) == set(odd) & set(divergence.group.ranks)), None)
    if own is None:
        by_call: dict[str, list[int]] = {}
        for cohort in cohorts:
            by_call.setdefault(call_of(cohort, incident), []).extend(cohort.ranks)
        if len(by_call) == 1:  # one line made the call, but the ranks reached it by different lines
            return (f"ranks came to {next(iter(by_call))} by different paths",)
        sides = [f"{plain_ranks(sorted(ranks))} called {call}" for call, ranks in list(by_call.items())[:3]]
        return (
            f"ranks took different paths: {', '.join(sides)}",
            f"ranks took different paths: {', '.join(sides[:2])}",
        )
    usual = max((c for c in cohorts if c is not own), key=lambda c: len(c.ranks), default=None)
    if usual is None:
        return ()
    rest = others(usual.ranks, odd, incident)
    if went_without(divergence, own, usual, incident):
        missed = f"without {definite(_sized_call(usual, incident))} that {rest} made"
        return (
            f"{plain_ranks(odd)} went on to {call_of(own, incident)} {missed}",
            f"{plain_ranks(odd)} went on {missed}",
        )
    same = plain_call(own.op) == plain_call(usual.op) and not place_of_call(usual, incident)
    theirs = f"another {_sized_call(usual, incident)}" if same else call_of(usual, incident)
    main = f"{plain_ranks(odd)} called {call_of(own, incident)} while {rest} called {theirs}"
    return (main, f"{plain_ranks(odd)} called {plain_call(own.op)} while the others called {theirs}")


def _sized_call(cohort: Cohort, incident: Incident) -> str:
    """The call with its size, if no line of the user's code made it: DDP's buckets differ in nothing else."""
    size = f" of size {list(cohort.sizes[0])}" if len(cohort.sizes) == 1 and not place_of_call(cohort, incident) else ""
    return f"{call_of(cohort, incident)}{size}"


def _tell_ring(divergence: Divergence, incident: Incident) -> tuple[str, ...]:
    if not divergence.odd:
        who = plain_ranks(divergence.cycle) if divergence.cycle else "ranks"
        places = dict.fromkeys(p for c in divergence.cohorts if (p := plain_place(c.stack)))
        at = f" ({' and '.join(places)})" if places else ""
        why = ": one of them skipped a call or made one too many"
        return (f"{who} wait for each other{at}{why}", f"{who} wait for each other{why}")
    odd, present = divergence.odd, waiting(divergence, divergence.odd)
    waits = f"{plain_ranks(odd)} {verb(odd, 'waits', 'wait')}"
    if not present:
        return (f"{plain_ranks(odd)} skipped a call in which others wait; {waits} for them in another one",)
    ranks = present[0].ranks
    who = others(ranks, odd, incident)
    wait = verb(ranks, "waits", "wait")
    came = f"{plain_ranks(odd)} never called {definite(call_of(present[0], incident))}, where {who} {wait}"
    if divergence.channel and odd == divergence.channel[:1]:
        came = f"{plain_ranks(odd)} sent no message to {who}, which {wait} for it in {call_of(present[0], incident)}"
        if (target := _sends_to(odd[0], incident)) not in (None, divergence.channel[1]):
            return with_endings(came, f"; {plain_ranks(odd)} waits in a send to rank {target}")
    own = next((c for c in divergence.cohorts if c.role is Role.ELSEWHERE and set(c.ranks) & set(odd)), None)
    place = plain_place(own.stack) if own else None
    return with_endings(came, f"; {waits} at {place}" if place else f"; {waits} for the others in another call")


def _sends_to(rank: int, incident: Incident) -> int | None:
    """The receiver of the send in which the rank waits."""
    channels = [p.channel for p in incident.timeline.positions.get(rank, ()) if p.channel and p.channel[0] == rank]
    return channels[0][1] if len(channels) == 1 else None


def _tell_shift(divergence: Divergence, incident: Incident) -> tuple[str, ...]:
    shift = divergence.shift
    assert shift is not None  # checked by the caller
    count, odd = abs(shift.by), divergence.odd
    word = f"{'message' if divergence.channel else 'call'}{'s' if count > 1 else ''}"
    many = "one" if count == 1 else str(count)
    if not odd and divergence.channel:
        return _tell_uneven(divergence, shift, many)
    own = next((c for c in divergence.cohorts if c.op and (set(c.ranks) & set(odd) or not odd)), None)
    place = plain_place(own.stack) if own else None
    seen = f" (seen at {place})" if place else ""
    if not odd:
        usual, other = (plain_ranks(side) for side in divergence.sides[:2])
        apart = f"{other} {verb(divergence.sides[1], 'is', 'are')} {many} {word} apart from {usual}"
        return with_endings(f"{apart}: one side skipped or added {verb(range(count), 'it', 'them')}", seen)
    done = (
        f"skipped {many} {word}{_towards(divergence)}"
        if shift.by > 0
        else f"made {many} {word}{_towards(divergence)} too many"
    )
    if not pairs_wrongly(divergence):
        return with_endings(f"{plain_ranks(odd)} {done}", *wait_for(divergence, odd, incident))
    rest = sorted(set(divergence.channel or divergence.group.ranks) - set(odd))
    theirs = f" of {others(rest, odd, incident)}" if rest and not divergence.channel else ""
    later = f"{verb(odd, 'its', 'their')} {'messages' if divergence.channel else 'calls'}"
    paired = f"; since then {later} are paired with the wrong ones{theirs}"
    return with_endings(f"{plain_ranks(odd)} {done}", paired, seen)


def _tell_uneven(divergence: Divergence, shift: Shift, many: str) -> tuple[str, ...]:
    """The ends of a channel count differently, and neither is known to be wrong."""
    assert divergence.channel is not None  # checked by the caller
    source, target = divergence.channel
    more, fewer = (target, source) if shift.by < 0 else (source, target)
    called, other = ("recv", "sent") if more == target else ("send", "received")
    times = "once more" if many == "one" else f"{many} more times"
    own = next((c for c in divergence.cohorts if c.op and more in c.ranks), None)
    place = plain_place(own.stack) if own else None
    told = f"rank {more} called {called}{f' ({place})' if place else ''} {times} than rank {fewer} {other}"
    return with_endings(told, ": one of them skipped or added a message")


def _towards(divergence: Divergence) -> str:
    """` to rank 3`, ` from rank 2`: the direction of a channel's messages, seen from the odd end."""
    if divergence.channel is None or len(divergence.odd) != 1:
        return ""
    source, target = divergence.channel
    return f" to rank {target}" if divergence.odd[0] == source else f" from rank {source}"


def tell_parted(parted: PartedStacks, incident: Incident) -> tuple[str, ...]:
    """From stacks alone: `rank 3 left the path of the others at train.py:30: it waits in barrier at train.py:36, the
    other 3 ...`.
    """
    usual, own = parted.divergence.cohorts
    turn, stand = parted.place.partition(" ")[0], plain_place(own.stack)
    main = f"{plain_ranks(own.ranks)} left the path of the others"
    at = "" if turn == stand else f" at {turn}"
    rest = f"{others(usual.ranks, own.ranks, incident)} {_waits(usual, incident)}"
    return (f"{main}{at}: {verb(own.ranks, 'it', 'they')} {_waits(own, incident)}, {rest}", f"{main} at {turn}")


def _waits(cohort: Cohort, incident: Incident) -> str:
    """`waits in all_reduce at train.py:40`; `waits at train.py:40` if the call is torch's own, as in a backward pass."""
    wait, place = verb(cohort.ranks, "waits", "wait"), plain_place(cohort.stack)
    return f"{wait} at {place}" if cohort.op == UNKNOWN_CALL and place else f"{wait} in {call_of(cohort, incident)}"


def tell_refusal(refusal: Refusal, incident: Incident) -> tuple[str, ...]:
    rank, place = refusal.stack.rank, plain_place(refusal.stack.stack)
    usual = next((c for c in refusal.divergence.cohorts if c.sizes), None)
    rest = f" while {others(usual.ranks, (rank,), incident)} were in {call_of(usual, incident)}" if usual else ""
    ended = f"; gloo ended rank {rank}, which got data of another size than it expected"
    return with_endings(f"rank {rank} was at {place or 'another call'}{rest}", ended)


def tell_refused_apart(apart: RefusedApart) -> tuple[str, ...]:
    ranks, others_ = apart.ranks, plain_ranks([one.rank for one in apart.others])
    place = plain_place(apart.others[0].stack)
    plain = f"{plain_ranks(ranks)} {verb(ranks, 'was', 'were')} in another call than {others_}{f' (at {place})' if place else ''}"
    return with_endings(plain, f"; gloo ended {verb(ranks, 'it', 'them')} because the sizes do not match")


def tell_lone_caller(lone: LoneCaller, incident: Incident) -> tuple[str, ...]:
    usual, own = lone.divergence.cohorts
    plain = f"rank {lone.standing.rank} {_waits(own, incident)}, which no other rank comes to"
    return with_endings(plain, f"; {others(usual.ranks, own.ranks, incident)} {_waits(usual, incident)}")


def tell_handling(first: Handling, divergence: Divergence, incident: Incident) -> tuple[str, ...]:
    where, place = _at(plain_place(first.raised.stack)), plain_place(first.ended.stack)
    went = f" and went on to {place} while handling it" if place else " and went on elsewhere while handling it"
    endings = tuple(
        f"; {others(stay.ranks, divergence.odd, incident)} still {verb(stay.ranks, 'waits', 'wait')} in {call_of(stay, incident)}"
        for stay in waiting(divergence, divergence.odd)[:1]
    )
    return tuple(
        text
        for what in raised(first.raised)
        for text in with_endings(f"rank {first.rank} raised {what}{where}{went}", *endings)
    )


def tell_departure(gone: list[Departed], divergence: Divergence | None, incident: Incident) -> tuple[str, ...]:
    """The first of several speaks for those that ended in the same way."""
    first, ranks = gone[0], tuple(d.rank for d in gone)
    alike = len({d.how for d in gone}) == 1
    who, wait = plain_ranks(ranks), wait_for(divergence, ranks, incident)
    if divergence is None and cut_off(incident):
        wait = (f"; the others lost their connections to {verb(ranks, 'it', 'them')}",)
    if not alike:
        return with_endings(f"{who} raised an exception or ended, and left", *wait)
    if first.how not in (Departure.RAISED, Departure.DIED) or first.event is None:
        return with_endings(f"{who} ended {verb(ranks, 'its program', 'their programs')}", *wait)
    where = _at(plain_place(first.event.stack))
    said = raised(first.event) if len(gone) == 1 else raised(first.event)[-1:]
    return tuple(text for what in said for text in with_endings(f"{who} raised {what}{where} and left", *wait))


def _at(place: str | None) -> str:
    return f" at {place}" if place else ""


# ---------------------------------------------------------------------------------------------------------------------
# The same with every call and slot, for the summary.


def is_one_too_many(divergence: Divergence) -> bool:
    return bool(divergence.odd) and divergence.odd == divergence.sides[0]


def state_parting(divergence: Divergence, incident: Incident) -> str:
    odd = name_ranks(divergence.odd) if divergence.odd else "some ranks"
    slot = describe_slot(divergence)
    if divergence.shift:
        return state_shift(divergence, incident)
    if divergence.how is PartingKind.METADATA:
        return state_calls(divergence)
    if is_one_too_many(divergence):
        return f"{odd} issued a collective at {slot} that the others did not: {'; '.join(list_calls(divergence)[:3])}"
    if divergence.how is PartingKind.CYCLE and not divergence.odd:
        return f"ranks wait for each other, at {slot} and elsewhere: one side skipped a call or made an extra one"
    if divergence.how is PartingKind.CYCLE:
        waits = verb(divergence.odd, "waits", "wait")
        return f"{odd} did not issue {slot}, where others wait, and {waits} for them in another call"
    stack = live_stack(divergence.odd[0], incident)
    place = user_place(stack.stack) if stack else None
    where = f" ({place})" if place else ""
    return f"{odd} {verb(divergence.odd, 'is', 'are')} in another call{where} while the others wait at {slot}"


def state_calls(divergence: Divergence) -> str:
    """The odd ranks first, if they are known and all did the same."""
    slot, cohorts = describe_slot(divergence), issuing(divergence)
    own = next((c for c in cohorts if c.ranks == divergence.odd), None)
    if own is None:
        return f"ranks took different paths: at {slot} {', but '.join(list_calls(divergence)[:3])}"
    rest = [f"{name_ranks(c.ranks)} called {_call(c)}" for c in cohorts if c is not own]
    it = verb(own.ranks, "it", "they")
    return f"{name_ranks(own.ranks)} took another path: at {slot} {it} called {_call(own)}, while {'; '.join(rest[:2])}"


def list_calls(divergence: Divergence) -> list[str]:
    return [f"{name_ranks(c.ranks)} called {_call(c)}" for c in issuing(divergence)]


def _call(cohort: Cohort) -> str:
    sizes = f" {[list(s) for s in cohort.sizes[:3]]}" if cohort.sizes else ""
    place = user_place(cohort.stack)
    return f"{cohort.op}{sizes}{f' from {place}' if place else ''}"


def state_shift(divergence: Divergence, incident: Incident) -> str:
    shift, slot = divergence.shift, describe_slot(divergence)
    assert shift is not None  # checked by the caller
    if not divergence.odd:
        return f"at {slot} {tell_parting(divergence, incident)[0]}"
    what, count = "message" if divergence.channel else "call", abs(shift.by)
    done = f"{'skipped' if shift.by > 0 else 'issued'} {count} {'' if shift.by > 0 else 'extra '}{what}{'s' if count > 1 else ''}"
    then = "; from there on calls pair with the wrong ones" if pairs_wrongly(divergence) else ", and others wait there"
    return f"{name_ranks(divergence.odd)} {done} at {slot}{then}"
