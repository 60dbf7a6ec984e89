"""Incident -> readings of where ranks are, by their stacks and tracebacks, if no recorded call shows it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.judge.facts.cite import cite_stack, verb
from forkpoint.judge.facts.stacks import (
    PartedStacks,
    Standing,
    find_parted_stacks,
    find_standings,
    is_at_work,
    is_communicating,
    is_making_group,
    is_waiting_for_ranks,
    waits_for_gpu,
)
from forkpoint.judge.facts.symptom import hang_is_shown, has_ops, stands_still
from forkpoint.judge.hypotheses.asking import Sides, who_is_meant
from forkpoint.judge.hypotheses.one_line import read_one_line
from forkpoint.judge.hypotheses.silence import MAX_SIDES, find_unstopped, read_silence
from forkpoint.model.capture import LiveStack
from forkpoint.model.frames import bare_name, place_of, user_frames, user_place
from forkpoint.model.headline import plain_place, plain_ranks
from forkpoint.model.incident import Incident
from forkpoint.model.verdict import Cause, Hypothesis
from forkpoint.model.world import name_ranks

_MESSAGES = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})


def read_stacks(incident: Incident) -> Iterator[Hypothesis]:
    if find_parted_stacks(incident) is not None:
        return
    still = stands_still(incident) or hang_is_shown(incident) or not has_ops(incident)
    stacks = list({s.rank: s for s in incident.capture.stacks}.values()) if still else []
    if importing := _find_importing(stacks):
        yield from _starting(importing, stacks)
        return
    inside = [s for s in stacks if _waits_for_ranks(s)]
    if any(is_at_work(s.stack) for s in stacks if s not in inside):  # for which, through its GPU, a host may wait
        inside = [s for s in stacks if s in inside or waits_for_gpu(s.stack)]
    outside = [s for s in stacks if s not in inside]
    apart = _find_apart(stacks)
    if outside and inside and len(outside) <= len(inside):
        yield from _held_outside(outside, inside)
    elif apart:
        yield from _stand_apart(apart, stacks)
    elif outside:
        yield from _all_outside(outside, incident)
    elif inside or find_standings(incident):
        yield from _all_inside(incident)


def _find_importing(stacks: list[LiveStack]) -> list[LiveStack]:
    """Ranks whose script is still importing, if all others are too or create a group: the job has not begun."""
    importing = [s for s in stacks if _is_at_its_imports(s)]
    begun = [s for s in stacks if s not in importing and not is_making_group(s.stack)]
    return importing if not begun else []


def _is_at_its_imports(stack: LiveStack) -> bool:
    """Only module bodies called it, and Python's import system: no function of the program runs yet."""
    own = user_frames(stack.stack)
    imports = any("importlib." in place_of(frame) for frame in stack.stack)
    return imports and bool(own) and all(bare_name(frame) == "<module>" for frame in own)


def _starting(importing: list[LiveStack], stacks: list[LiveStack]) -> Iterator[Hypothesis]:
    """A moment of every start. Only if it lasts is something wrong: usually the file system that holds the modules."""
    ranks = tuple(sorted(s.rank for s in importing))
    others = tuple(sorted(s.rank for s in stacks if s.rank not in ranks))
    place = plain_place(importing[0].stack)
    at = f" ({place})" if place else ""
    meet = f", and {plain_ranks(others)} {verb(others, 'waits', 'wait')} for them to join" if others else ""
    still = f"{plain_ranks(ranks)} {verb(ranks, 'is', 'are')} importing modules{at}{meet}"
    cited = tuple(cite_stack(s) for s in (*importing[:2], *(s for s in stacks if s.rank in others[:1])))
    yield Hypothesis(
        Cause.HEALTHY,
        (),
        f"the job is starting: {still}",
        "the stacks of all ranks again, ten seconds later: are they still importing?",
        supports=cited,
        plain=f"the job is starting: {still}",
        asks="the stacks again, ten seconds later,",
    )
    yield Hypothesis(
        Cause.NEVER_JOINED,
        ranks if others and len(ranks) <= len(others) else (),
        f"{plain_ranks(ranks)} {verb(ranks, 'hangs', 'hang')} in an import{at}: the file system that holds the modules is slow or hangs",
        f"py-spy dump --native --pid <pid of rank {ranks[0]}>, twice, and the state of that file system on its node",
        alternatives=(Cause.HOST_STALL,),
        supports=cited,
        asks=f"the stack of rank {ranks[0]} again, ten seconds later,",
    )


def _held_outside(outside: list[LiveStack], inside: list[LiveStack]) -> Iterator[Hypothesis]:
    """Some ranks are in their own code, and at least as many wait for ranks."""
    ranks = tuple(sorted(s.rank for s in outside))
    making = any(is_making_group(s.stack) for s in inside)
    places = {plain_place(s.stack) for s in outside} - {None}
    cited = tuple(cite_stack(s) for s in (*outside[:2], *inside[:1]))
    yield Hypothesis(
        Cause.HOST_STALL,
        ranks,
        f"{name_ranks(ranks)} {verb(ranks, 'is', 'are')} held outside communication while the others wait",
        f"py-spy dump --native --pid <pid of rank {ranks[0]}>, twice: is it at the same line?",
        supports=cited,
        plain=f"{plain_ranks(ranks)} {verb(ranks, 'is', 'are')} stuck at {places.pop()}" if len(places) == 1 else "",
        asks=f"the stack of rank {ranks[0]} again, ten seconds later,",
    )
    yield Hypothesis(
        Cause.NEVER_JOINED if making else Cause.DIVERGENT_PATH,
        ranks,
        f"{name_ranks(ranks)} did not reach {'the group that the others make' if making else 'the call of the others'}",
        f"the log of {name_ranks(ranks)}, and the source at its line",
        supports=cited,
        asks=f"the log of {name_ranks(ranks)}",
    )


def _find_apart(stacks: list[LiveStack]) -> list[LiveStack]:
    """Ranks that are not at the line at which more than half of all seen ranks are."""
    usual, count = Counter(user_place(s.stack) for s in stacks).most_common(1)[0] if stacks else (None, 0)
    return [s for s in stacks if user_place(s.stack) != usual] if 2 * count > len(stacks) else []


def _stand_apart(apart: list[LiveStack], stacks: list[LiveStack]) -> Iterator[Hypothesis]:
    """Any line of a program may wait for the GPU, and so for ranks: whether the few left the others or are stuck is
    open.
    """
    ranks = tuple(sorted(s.rank for s in apart))
    others = [s for s in stacks if s not in apart]
    where, there = plain_place(apart[0].stack), plain_place(others[0].stack)
    causes = (
        (Cause.HOST_STALL, Cause.DIVERGENT_PATH)
        if is_at_work(apart[0].stack)
        else (Cause.DIVERGENT_PATH, Cause.HOST_STALL)
    )
    says = f"{name_ranks(ranks)} {verb(ranks, 'stands', 'stand')} at {where} and {len(others)} others at {there}"
    yield Hypothesis(
        causes[0],
        ranks,
        f"{says}: {verb(ranks, 'it', 'they')} took another path, or {verb(ranks, 'is', 'are')} stuck there",
        f"the dumps of all ranks, or py-spy dump --native --pid <pid of rank {ranks[0]}>, twice: is it at the same line?",
        alternatives=(causes[1], Cause.METADATA_MISMATCH),
        supports=tuple(cite_stack(s) for s in (*apart[:2], *others[:1])),
        plain=f"{plain_ranks(ranks)} left the others, or {verb(ranks, 'is', 'are')} stuck, at {where}",
        asks="the dumps of all ranks",
    )


def _all_outside(outside: list[LiveStack], incident: Incident) -> Iterator[Hypothesis]:
    cited = tuple(cite_stack(s) for s in outside[:4])
    places = {plain_place(s.stack) for s in outside} - {None}
    seen = tuple(s.rank for s in outside)
    unseen = find_unstopped(set(seen), incident)
    if unseen:
        yield from read_silence(unseen, seen, "the call of the others", cited, incident)
    yield Hypothesis(
        Cause.HOST_STALL,
        (),
        "every rank that is seen is held outside communication: by a lock, a queue, a store, a file, or a GPU that waits for ranks",
        "py-spy dump --native of all threads: who holds what the main threads wait for?",
        alternatives=(Cause.GPU_STALL,),
        supports=cited,
        plain=f"every rank that was seen is held at {places.pop()}" if len(places) == 1 else "",
        asks="native stacks of all threads",
    )


def _waits_for_ranks(stack: LiveStack) -> bool:
    """Directly, or it waits for a lock, an event or a queue while another of its threads waits for ranks."""
    by_thread = is_at_work(stack.stack) and any(is_communicating(other) for _, other in stack.others)
    return is_waiting_for_ranks(stack.stack) or by_thread


def _all_inside(incident: Incident) -> Iterator[Hypothesis]:
    """Every rank that is seen waits in communication: who is in another place, or who is not seen."""
    standings = find_standings(incident)
    sides = by_place(standings)
    cited = tuple(standings[side[0]].evidence for side in sides[:4])
    unseen = find_unstopped(set(standings), incident)
    if unseen:
        yield from read_silence(unseen, tuple(standings), "the call in which the others wait", cited, incident)
    if len(sides) == 1:
        yield from read_one_line(standings, cited, incident)


def _parted(parted: PartedStacks) -> Iterator[Hypothesis]:
    """Every rank is seen, and some took another branch than the others."""
    who = name_ranks(parted.odd)
    path = Hypothesis(
        Cause.DIVERGENT_PATH,
        parted.odd,
        f"{who} took another path at {parted.place}",
        "the dumps of all ranks, recorded with TORCH_FR_BUFFER_SIZE=2000: which call did each make, with which sizes?",
        supports=parted.evidence,
        asks="the dumps of all ranks",
    )
    yield path
    yield replace(path, cause=Cause.METADATA_MISMATCH, says=f"{who} used another size in an earlier call")


def read_other_lines(incident: Incident) -> Iterator[Hypothesis]:
    """Ranks that wait for others at different lines. Pipeline stages always do: there, each rank may be the one."""
    if parted := find_parted_stacks(incident):
        yield from _parted(parted)
        return
    standings = {r: s for r, s in find_standings(incident).items() if is_waiting_for_ranks(s.stack)}
    sides = by_place(standings)
    if len(sides) < 2:
        return
    messages = any(standing.called in _MESSAGES for standing in standings.values())
    one_odd = len(sides) == 2 and len(sides[0]) < len(sides[1]) and not messages
    each = tuple((rank,) for rank in sorted(standings))[:MAX_SIDES]
    named, left = (sides[0], ()) if one_odd else ((), each if messages else sides[:MAX_SIDES])
    who = who_is_meant(named, left)
    cited = tuple(standings[side[0]].evidence for side in sides[:4])
    decides = (
        "the dumps of all ranks, recorded with TORCH_FR_BUFFER_SIZE=2000: which call did each make, and in which order?"
    )
    plain = _plain_sides(standings, sides, one_odd=one_odd) if len(sides) == 2 and not messages else ""
    for cause, says, others in (
        (
            Cause.DIVERGENT_PATH,
            "took another path, or used another size in an earlier call",
            (Cause.METADATA_MISMATCH,),
        ),
        (Cause.ORDER_INVERSION, "made the same calls in another order", ()),
    ):
        yield Hypothesis(
            cause,
            named,
            f"{who} {says}",
            decides,
            alternatives=others,
            sides=left,
            supports=cited,
            plain=plain if cause is Cause.DIVERGENT_PATH else "",
            asks="the dumps of all ranks",
        )


def _plain_sides(standings: dict[int, Standing], sides: Sides, *, one_odd: bool) -> str:
    (one, at), (other, there) = ((plain_ranks(s), plain_place(standings[s[0]].stack)) for s in sides)
    if not at or not there:
        return ""
    if one_odd:
        return f"{one} (at {at}) made another call than the others, or used other sizes"
    return f"ranks took different paths: {one} {verb(sides[0], 'waits', 'wait')} at {at}, {other} at {there}"


def by_place(standings: dict[int, Standing]) -> Sides:
    """Ranks at the same place, the smallest set first."""
    places: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for rank, standing in sorted(standings.items()):
        places.setdefault(standing.place, []).append(rank)
    return tuple(sorted(map(tuple, places.values()), key=lambda side: (len(side), side)))
