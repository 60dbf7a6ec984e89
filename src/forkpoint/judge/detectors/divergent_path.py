"""Ranks took different control flow: one side skipped, added or replaced a collective, or left the loop.

What it looks like
    In one slot the members of a group issued different operations, or the same operation from different lines; or one
    side's ops are those of the others shifted by a few slots; or a rank handled one exception, raised another and left while
    others wait; or ranks had issued different numbers of calls at the end of the same training step, if steps are reported.
    gloo aborts a rank that receives more bytes than it expects: its log then shows the line it was in, and the others' dumps
    show that they were elsewhere. A rank may also wait in a call inside an `except` or `finally`; its log shows which
    exception led there. One decision can part ranks in several groups of one kind at the same number (the rows of a mesh):
    they are counted and named together. Or all ranks wait except the only one without a dump, which is alive and alone has
    logged that it stops or skips something. Without dumps: every rank's stack or traceback is in a communication call, and
    most are at the same line.

Why it happens
    A branch, a loop count or an exception that depends on the rank or on its local data: a rank-0-only metric that
    reduces, an early stop on a local loss, uneven batches, a swallowed exception.

What rules it out
    The same calls in another order (order-inversion). The same line with other sizes (metadata-mismatch). A rank that
    has not come yet, with its ops in step so far (host-stall). A process that was killed (rank-lost). Two threads that
    share a group (order-inversion). Nobody is named if the odd call of one group is the usual one of a neighbouring group,
    if two ranks log that they leave, or if, judging by stacks alone, the ranks behind may have used other sizes: gloo aborts
    a process for that in all_reduce and all_gather, and completes other calls on ranks that sent less.

Fix
    Make the decision the same on all ranks: reduce or broadcast the condition before the branch, move the collective out
    of it, agree on the number of steps, and let one rank's exception stop all ranks.
"""

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.judge.facts import set_up
from forkpoint.judge.facts.blame import cut_off
from forkpoint.judge.facts.calls import (
    find_odd_by_words,
    find_odd_in_all,
    holds_past,
    is_of_two_threads,
    is_reordered,
    may_be_reordered,
    same_call_site,
    same_op,
)
from forkpoint.judge.facts.cite import (
    DECIDED,
    LIKELY,
    STRONG,
    WEAK,
    cite_divergence,
    cite_event,
    cite_stack,
    describe_slot,
    events_of,
    live_stack,
)
from forkpoint.judge.facts.departures import Departure, cite_end, find_departed, missing_from
from forkpoint.judge.facts.handling import Handling, find_handling
from forkpoint.judge.facts.late_ranks import find_gave_up
from forkpoint.judge.facts.left_waiting import find_ended_early, find_left_waiting
from forkpoint.judge.facts.log_lines import (
    find_call_mismatch,
    find_group_mismatch,
    find_last_words,
    find_lone_notice,
    find_step_parting,
)
from forkpoint.judge.facts.older_dumps import says_nothing
from forkpoint.judge.facts.own_ways import find_in_a_branch_of_one, find_lone_caller, leads_aside, may_be_of_two_threads
from forkpoint.judge.facts.refusal import Refused, find_refusal, refused_in_all_to_all, refused_sizes
from forkpoint.judge.facts.refused_apart import RefusedApart, find_refused_apart
from forkpoint.judge.facts.stacks import (
    PartedStacks,
    Standing,
    find_elsewhere_by_stacks,
    find_parted_stacks,
    find_parted_stacks_of_most,
    find_standings,
    is_communicating,
    may_be_behind,
)
from forkpoint.judge.facts.symptom import hang_is_shown, has_ops
from forkpoint.judge.hypotheses.seen_in_calls import find_odd_seen
from forkpoint.judge.telling.path_headlines import (
    is_one_too_many,
    state_parting,
    tell_calls,
    tell_departure,
    tell_handling,
    tell_lone_caller,
    tell_parted,
    tell_parting,
    tell_refusal,
    tell_refused_apart,
)
from forkpoint.model.frames import user_frames, user_place
from forkpoint.model.headline import first_words, quote_error, with_endings
from forkpoint.model.incident import Divergence, Incident, PartingKind
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.verdict import Action, Cause, Evidence, Finding, Fix, Probe
from forkpoint.model.world import name_ranks

NAME = "divergent-path"
_LIVES = frozenset({LogKind.DUMPED, LogKind.DUMP_SIGNAL})
"""Lines that only a running process prints: its recorder was asked to dump."""
_ALL_MAKE_GROUPS = Fix("call new_group on all ranks, members or not, in the same order")


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    if divergence is not None and (finding := _by_records(divergence, incident)):
        yield finding
    elif divergence is None and (steps := find_step_parting(incident)):
        finding = _finding(None, steps.odd, steps.told, STRONG if steps.odd else LIKELY, incident)
        yield replace(finding, evidence=steps.evidence, headlines=(steps.told,))
    elif divergence is None and (mismatch := find_call_mismatch(incident)) and mismatch.is_other_path:
        told = "; ".join(f"{name_ranks(c.ranks)} {mismatch.calls[c.ranks[0]]}" for c in mismatch.divergence.cohorts[:3])
        finding = _finding(mismatch.divergence, mismatch.odd, f"ranks make different calls: {told}", LIKELY, incident)
        cited = tuple(cite_event(e) for e in mismatch.events[:4])
        yield replace(finding, evidence=cited, headlines=tell_calls(mismatch.divergence, mismatch.odd, incident))
    elif divergence is None and (groups := find_group_mismatch(incident)):
        finding = _finding(None, groups.odd, groups.told, LIKELY, incident)
        yield replace(finding, evidence=groups.evidence, headlines=(groups.plain,), fixes=(_ALL_MAKE_GROUPS,))
    elif divergence is None and (
        finding := _by_stacks(incident)
        or _not_at_set_up(incident)
        or _by_last_line(None, incident)
        or _at_its_end(incident)
    ):
        yield finding
    elif (refusal := find_refusal(incident)) and refusal.how is Refused.PATH:
        told = f"at {describe_slot(refusal.divergence)} {refusal.told_places}; {refusal.told}"
        finding = _finding(refusal.divergence, refusal.divergence.odd, told, refusal.confidence, incident)
        plain = tell_refusal(refusal, incident)
        yield replace(finding, evidence=(*refusal.evidence, *finding.evidence), headlines=plain)
    elif apart := find_refused_apart(incident):
        yield _refused(apart, incident)
    elif (divergence is None or says_nothing(divergence, incident)) and refused_sizes(incident):
        notice = None if refused_in_all_to_all(incident) else find_lone_notice(incident)
        yield from (_noticed(one, incident) for one in (notice,) if one)
    else:
        yield from _left_by_itself(divergence, incident)


def _by_records(divergence: Divergence, incident: Incident) -> Finding | None:
    """What recorded calls show, supported by stacks and logs."""
    if handling := find_handling(divergence, incident):
        return _led_aside(divergence, handling, incident)
    if _is_other_path(divergence, incident):
        return _parted(divergence, incident)
    if set_up.is_alone_in_group(divergence, incident):
        return _parted(replace(divergence, odd=divergence.sides[0]), incident)
    away = find_elsewhere_by_stacks(divergence, incident)
    if not away:
        return _announced(divergence, incident) or _by_last_line(divergence, incident)
    named = replace(divergence, odd=away)
    finding = _finding(named, away, state_parting(named, incident), LIKELY, incident)
    cited = (*_cite_stacks(away, incident), *finding.evidence)
    return replace(finding, evidence=cited, headlines=tell_parting(named, incident))


def _refused(apart: RefusedApart, incident: Incident) -> Finding:
    finding = _finding(apart.divergence, apart.ranks, apart.told, LIKELY, incident)
    return replace(finding, evidence=apart.evidence, headlines=tell_refused_apart(apart))


def _announced(divergence: Divergence, incident: Incident) -> Finding | None:
    """All ranks but one wait; that one has no dump here, is alive, and alone has logged that it stops or skips something."""
    notice = find_lone_notice(incident)
    missed = divergence.how is PartingKind.ABSENCE and divergence.channel is None and len(divergence.unknown) == 1
    if notice is None or not missed or divergence.unknown != (notice.rank,) or not hang_is_shown(incident):
        return None
    lives = any(e.kind in _LIVES for e in incident.said.get(divergence.unknown[0], ()))
    if not lives or any(d.rank == notice.rank for d in find_departed(incident)):
        return None
    named = replace(divergence, odd=divergence.unknown)
    told = f"only rank {notice.rank} logged: {notice.text}; it did not reach {describe_slot(divergence)}, where all others wait"
    plain = f"only rank {notice.rank} {_logged(notice)}, and it did not reach the call in which the others wait"
    finding = _finding(named, named.odd, told, LIKELY, incident)
    return replace(finding, evidence=(cite_event(notice), *finding.evidence), headlines=(plain,))


def _parted(divergence: Divergence, incident: Incident) -> Finding:
    """If a vote of dumps does not tell who differs, the stacks of the other members may, or a rank may have logged it."""
    by_words = find_odd_by_words(divergence, incident)
    by_vote, by_stacks = find_odd_in_all(divergence, incident) or by_words, find_odd_seen(divergence, incident)
    words = None if by_vote or by_stacks else find_last_words(divergence.sides, incident)
    alone = () if words or by_vote or by_stacks else find_in_a_branch_of_one(divergence, incident)
    odd = (words.rank,) if words and words.rank is not None else by_vote or by_stacks or alone
    named = replace(divergence, odd=odd)
    if alone and alone[0] in find_standings(incident):
        named = _with_stack(named, find_standings(incident)[alone[0]])
    sure = LIKELY if words else _confidence(named)
    finding = _finding(named, named.odd, state_parting(named, incident), sure, incident)
    said = (cite_event(words),) if words else _cite_stacks(divergence.unknown if by_stacks else alone, incident)
    voted = (
        [e for r in divergence.unknown for e in events_of(r, incident, LogKind.WATCHDOG_TIMEOUT)] if by_words else []
    )
    cited = (*said, *(cite_event(e) for e in voted[:2]), *finding.evidence)
    return replace(finding, evidence=cited, headlines=tell_parting(named, incident))


def _with_stack(divergence: Divergence, standing: Standing) -> Divergence:
    """Its dump may hold no lines of the call."""
    cohorts = (
        replace(c, stack=c.stack or standing.stack) if c.ranks == (standing.rank,) else c for c in divergence.cohorts
    )
    return replace(divergence, cohorts=tuple(cohorts))


def _cite_stacks(ranks: tuple[int, ...], incident: Incident) -> tuple[Evidence, ...]:
    standings = find_standings(incident)
    return tuple(standings[rank].evidence for rank in ranks if rank in standings)[:2]


def _is_other_path(divergence: Divergence, incident: Incident) -> bool:
    match divergence.how:
        case PartingKind.METADATA:
            other_call = not same_op(divergence) or same_call_site(divergence) is False or divergence.shift is not None
            may_be_order = not holds_past(divergence, incident) and may_be_reordered(divergence, incident)
            threads = is_of_two_threads(divergence, incident) or may_be_of_two_threads(divergence, incident)
            ordered = not is_reordered(divergence, incident) and not threads
            return other_call and not may_be_order and ordered
        case PartingKind.MESSAGE:
            return divergence.shift is not None
        case PartingKind.ABSENCE:
            elsewhere = is_one_too_many(divergence) or _is_elsewhere(divergence, incident)
            return divergence.shift is not None or (elsewhere and hang_is_shown(incident))
        case PartingKind.CYCLE:
            lines = all(incident.timeline.traces[rank].has_stacks for rank in divergence.cycle)
            return divergence.left_order and lines and not _is_one_line(divergence)
        case _:
            return False


def _is_one_line(divergence: Divergence) -> bool:
    """The calls of a ring, each in another group, come from one line: a loop over groups, whose order may be what differs."""
    places = [user_frames(c.stack)[:1] for c in divergence.cohorts if c.stack]
    return divergence.channel is None and len(places) > 1 and len(set(places)) == 1


def _led_aside(divergence: Divergence, handling: tuple[Handling, ...], incident: Incident) -> Finding:
    """Ranks that wait in an `except` or `finally` while the others are still where the exception was raised."""
    first = handling[0]
    told = (
        f"rank {first.rank} raised {quote_error(first.raised.text)}{_at(user_place(first.raised.stack))} and, while handling it, "
        f"went on to {user_place(first.ended.stack)}; the others are still at {describe_slot(divergence)}"
    )
    named = replace(divergence, odd=tuple(h.rank for h in handling))
    finding = _finding(named, named.odd, told, DECIDED, incident)
    said = tuple(cite_event(event) for h in handling[:2] for event in (h.raised, h.ended))
    return replace(finding, evidence=(*said, *finding.evidence), headlines=tell_handling(first, named, incident))


def _by_stacks(incident: Incident) -> Finding | None:
    """From stacks alone, if no recorded call is pending: their paths part, or every rank is creating a group."""
    parted = None if has_ops(incident) else find_parted_stacks(incident)
    if parted and (parted.cannot_misfit or leads_aside(parted, incident)):
        return _told_by_stacks(parted, incident)
    if not has_ops(incident) and (lone := find_lone_caller(incident)):
        fork, place = lone.divergence, user_place(lone.standing.stack)
        told = f"rank {lone.standing.rank} waits in a call at {place} that, by the source, one rank alone makes"
        finding = _finding(fork, fork.odd, told, LIKELY, incident)
        return replace(finding, evidence=lone.evidence, headlines=tell_lone_caller(lone, incident))
    if (most := _noticed_elsewhere(incident)) is not None:
        return most
    if making := set_up.find_all_making_a_group(incident):
        told, plain = set_up.tell_all_making(making)
        finding = _finding(None, (), told, WEAK, incident)
        cited = tuple(one.evidence for one in making[:4])
        return replace(finding, evidence=cited, headlines=(plain,), fixes=(_ALL_MAKE_GROUPS,))
    return None


def _told_by_stacks(parted: PartedStacks, incident: Incident) -> Finding:
    told = f"{name_ranks(parted.odd)} left the path of the others at {parted.place}; every rank waits in a communication call"
    finding = _finding(parted.divergence, parted.odd, told, LIKELY, incident)
    return replace(finding, evidence=parted.evidence, headlines=tell_parted(parted, incident))


def _noticed_elsewhere(incident: Incident) -> Finding | None:
    """The only rank that logs that it left something out waits elsewhere than most, so no size differs. Others gave up later, so
    no rank without files had died.
    """
    notice = find_lone_notice(incident)
    parted = None if notice is None or has_ops(incident) else find_parted_stacks_of_most(incident)
    gave_up = find_gave_up(incident)
    if notice is None or parted is None or parted.odd != (notice.rank,) or refused_sizes(incident):
        return None
    if notice.rank not in gave_up or len(gave_up) < 2:
        return None
    told = f"only rank {notice.rank} logged: {notice.text}; it waits at {parted.place}, and the others elsewhere"
    plain = f"only rank {notice.rank} {_logged(notice)}, and it waits elsewhere than the others"
    finding = _finding(parted.divergence, parted.odd, told, LIKELY, incident)
    return replace(finding, evidence=(cite_event(notice), *parted.evidence), headlines=(plain,))


def _by_last_line(divergence: Divergence | None, incident: Incident) -> Finding | None:
    """According to the source, what some ranks printed last comes after, or instead of, the call in which the others wait."""
    left = find_left_waiting(incident)
    if left is None or any(d.rank in left.ranks and d.event is not None for d in find_departed(incident)):
        return None
    waiting = {standing.rank for standing in left.waiting}
    if divergence is not None and (
        divergence.how is not PartingKind.ABSENCE or not waiting >= set(divergence.sides[0])
    ):
        return None
    named = left.ranks if left.odd else ()
    finding = _finding(divergence and replace(divergence, odd=named), named, left.tell(), LIKELY, incident)
    return replace(finding, evidence=(*left.evidence, *finding.evidence), headlines=left.headlines())


def _at_its_end(incident: Incident) -> Finding | None:
    """By the source, some ranks came to the end of their program, and most others gave up waiting for them."""
    ended = find_ended_early(incident)
    if ended is None or ended.failed or has_ops(incident):
        return None
    finding = _finding(None, ended.ranks, ended.tell(), LIKELY, incident)
    return replace(finding, evidence=ended.evidence, headlines=ended.headlines())


def _not_at_set_up(incident: Incident) -> Finding | None:
    absent = set_up.find_absent_at_set_up(incident)
    if absent is None:
        return None
    told = f"rank {absent.rank} did not reach the communicator that {name_ranks(absent.asking)} set up"
    waits = f"it waits for them in {absent.waits.work.op.lower() if absent.waits.work else 'another call'}"
    finding = _finding(None, (absent.rank,), f"{told}; {waits}", LIKELY, incident)
    cited = tuple(cite_event(e) for e in (absent.waits, *absent.asked[:3]))
    return replace(finding, evidence=cited, headlines=with_endings(told, " and waits for them in another call"))


def _noticed(notice: LogEvent, incident: Incident) -> Finding:
    """Ranks used different sizes, and one of them alone says that it left something out."""
    assert notice.rank is not None  # the notice of a rank
    refused = refused_sizes(incident)
    receiver = "a rank" if refused[0].rank is None else f"rank {refused[0].rank}"
    summary = (
        f"only rank {notice.rank} logged: {notice.text}; then {receiver} got data of another size than it expected"
    )
    finding = _finding(None, (notice.rank,), summary, LIKELY, incident)
    return replace(
        finding,
        evidence=(cite_event(notice), *(cite_event(e) for e in refused[:2]), *finding.evidence),
        headlines=(
            f"only rank {notice.rank} {_logged(notice)}; then {receiver} got data of another size than it expected",
        ),
    )


def _logged(notice: LogEvent) -> str:
    words = first_words(notice.text)
    return f'logged "{words}"' if words else "logged that it left something out"


def _is_elsewhere(divergence: Divergence, incident: Incident) -> bool:
    """The absent rank's stack is in a communication call that no dump holds, on another line than that of the waiting ranks; on
    the same line it would be about to make this very call. A dump without finished calls proves nothing if lines are unknown.
    """
    stacks = [live_stack(r, incident) for r in divergence.odd]
    communicating = bool(stacks) and all(s is not None and is_communicating(s.stack) for s in stacks)
    here = {user_frames(c.stack)[:1] for c in divergence.cohorts if c.op}
    same_place = any(s is not None and user_frames(s.stack)[:1] in here for s in stacks)
    vague = any(incident.timeline.traces[r].is_partial for r in divergence.odd)
    standings, present = find_standings(incident), divergence.sides[0]
    behind = any(may_be_behind(standings[r], present, incident) for r in divergence.odd if r in standings)
    return communicating and not same_place and not behind and not (vague and () in here)


def _at(place: str | None) -> str:
    return f" at {place}" if place else ""


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
    alive = {e.rank for e in incident.capture.events if e.kind in _LIVES} if cut_off(incident) else set()
    if waiting or cut_off(incident) | alive >= set(incident.timeline.world) - ended:
        gone += left  # a normal exit is only odd if all the others are seen to wait, or continued after connections were lost
    if not gone or 2 * len(gone) >= len(incident.timeline.world):
        return
    where = f"; the others wait at {describe_slot(divergence)}" if divergence else ""
    summary = f"{'; '.join(f'rank {d.rank} {d.told}' for d in gone[:2])}{where}"
    finding = _finding(divergence, tuple(d.rank for d in gone), summary, STRONG if divergence else LIKELY, incident)
    said = tuple(e for d in gone[:4] for e in cite_end(d, incident))
    yield replace(finding, evidence=(*said, *finding.evidence), headlines=tell_departure(gone, divergence, incident))


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
