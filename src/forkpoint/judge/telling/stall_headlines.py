"""Headlines for a rank whose host is stuck: what it is in, and who waits for it."""

from itertools import takewhile

from forkpoint.judge.facts.blame import cut_off
from forkpoint.judge.facts.cite import verb
from forkpoint.judge.facts.stacks import find_standings, is_waiting_for_ranks
from forkpoint.judge.telling.phrases import call_of, others, they_wait, wait_for, waiting, waits
from forkpoint.model.capture import LiveStack
from forkpoint.model.frames import bare_name, is_user_code, short_name, without_runtime
from forkpoint.model.headline import UNKNOWN_CALL, definite, plain_call, plain_place, plain_ranks, quoted, with_endings
from forkpoint.model.incident import Incident
from forkpoint.model.op import Frame, Stack


def stall_headlines(behind: tuple[int, ...], stacks: list[LiveStack], incident: Incident) -> tuple[str, ...]:
    """`Rank 3's host is in `loads` (data.py:88); the other 7 wait for it in all_reduce.`"""
    wait = wait_for(incident.divergence, behind, incident) or _wait_by_stacks(behind, incident)
    if not stacks:
        return _unseen(behind, wait, incident)
    place = plain_place(stacks[0].stack)
    at = f" ({place})" if place else ""
    is_still = (
        "was still" if cut_off(incident) - set(behind) else "is still"
    )  # in the tense of those who wait, or waited
    doing = f"rank {stacks[0].rank} {is_still} in {_what_is_called(stacks[0].stack)}{at}"
    if (
        bare_name(without_runtime(stacks[0].stack)[0]) == "_shutdown" and not place
    ):  # threading's own, at the end of the program
        kept = {plain_place(other) for _, other in stacks[0].others} - {None}
        at = f" ({kept.pop()})" if len(kept) == 1 else ""
        doing = f"rank {stacks[0].rank} has ended its program, and its process waits for another of its threads{at}"
    if len(behind) > 1:
        return with_endings(f"{plain_ranks(behind)} did not reach the call of the others", f"; {doing}")
    return (*with_endings(doing, *wait), *with_endings(f"{plain_ranks(behind)} is stuck on its host", *wait))


def _unseen(behind: tuple[int, ...], wait: tuple[str, ...], incident: Incident) -> tuple[str, ...]:
    """`Rank 0 did not reach barrier at train.py:22, where the other 3 wait; no stack shows what holds it`."""
    present = waiting(incident.divergence, behind)
    plain = with_endings(f"{plain_ranks(behind)} did not reach the call in which the others wait", *wait)
    if len({cohort.op for cohort in present}) != 1:
        return plain
    ranks = [rank for cohort in present for rank in cohort.ranks]
    who = f"{others(ranks, behind, incident)} {waits(ranks, incident)}"
    call = call_of(present[0], incident)
    where = ", where" if " at " in call else " in which"
    came = f"{plain_ranks(behind)} did not reach {definite(call)}{where} {who}"
    return (*with_endings(came, f"; no stack shows what holds {verb(behind, 'it', 'them')}"), *plain)


def _wait_by_stacks(behind: tuple[int, ...], incident: Incident) -> tuple[str, ...]:
    """Like `wait_for`, if no call was recorded: the stacks show who waits, and where."""
    found = [s for rank, s in find_standings(incident).items() if rank not in behind and is_waiting_for_ranks(s.stack)]
    if incident.divergence is not None or not found:
        return ()
    calls, places = {plain_call(s.called) for s in found}, {plain_place(s.stack) for s in found}
    within = f" in {calls.pop()}" if len(calls) == 1 and UNKNOWN_CALL not in calls else ""
    they = they_wait([s.rank for s in found], behind, incident)
    return (f"; {they}{within}", *(f" ({place})" for place in places if place and len(places) == 1))


def _what_is_called(stack: Stack) -> str:
    """`` `json.loads` ``: what the user's own line calls; if it calls nothing, the function of that line."""
    stack = without_runtime(stack)
    inside = tuple(takewhile(lambda frame: not is_user_code(frame), stack))
    called = (inside if len(inside) < len(stack) else stack[:1])[-1:] or stack[:1]
    return next((quoted(_qualified(one) if inside else bare_name(one)) for one in called), None) or "a call"


def _qualified(frame: Frame) -> str:
    module = short_name(frame.filename.removesuffix("/__init__.py")).removesuffix(".py")
    return f"{module}.{bare_name(frame)}" if module.isidentifier() else bare_name(frame)
