"""A rank is stuck or slow on the CPU and never issues the next op.

What it looks like
    Others wait in a slot; this rank is alive (it wrote a dump), all its ops are done, and the next one is not issued.
    Its stack, if there is one, is in file I/O, a lock, a loader queue or compilation. "Could not acquire GIL" in its log
    means that its main thread holds the GIL. Logs alone: all others gave up at one line, while this rank reports no failure
    and did not print that it reached the same round, or a thread of it had ended, or by the source no other call comes next.

Why it happens
    Checkpoint or log upload on one rank, a data loader without data, a lock, a debugger, swapping, compilation.

What rules it out
    Its ops were already out of step with those of its peers (divergent-path). It is in another communication call
    (divergent-path). Its host waits for its own GPU (gpu-stall). It left no dump (rank-lost, or not known), unless its
    stack is in such work while all the others are in the slot. It came in the end (straggler).

Fix
    Take the slow work off the critical path (a background thread, a shared file system that answers), or bound it.
"""

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.diverge.replicas import Replicas
from forkpoint.diverge.skipped import find_counted_waits
from forkpoint.evidence.stacks.shapes import find_last_call
from forkpoint.judge.facts.blame import TIMEOUTS, cut_off, is_connecting, uses_gloo
from forkpoint.judge.facts.calls import may_differ_unseen
from forkpoint.judge.facts.cite import (
    DECIDED,
    LIKELY,
    STRONG,
    cite_divergence,
    cite_event,
    cite_stack,
    describe_slot,
    describe_stack,
    events_of,
    live_stack,
    verb,
)
from forkpoint.judge.facts.contrast import find_lines
from forkpoint.judge.facts.departures import missing_from
from forkpoint.judge.facts.late_ranks import (
    came_later,
    find_came_at_last,
    find_failed_thread,
    find_missed,
    find_who_did_not_come,
    find_worked_on,
    is_quiet,
    were_alive,
    worked_on_instead,
)
from forkpoint.judge.facts.own_ways import find_way_to
from forkpoint.judge.facts.rounds import find_only_behind
from forkpoint.judge.facts.stacks import (
    Standing,
    find_standings,
    is_at_work,
    is_communicating,
    is_computing,
    is_in_io,
    is_in_storage,
    is_waiting_for_ranks,
    waits_for_all,
    waits_for_gpu,
)
from forkpoint.judge.facts.symptom import all_said_done, find_symptom, hang_is_shown, has_ops, stands_still
from forkpoint.judge.hypotheses.asking import stack_of
from forkpoint.judge.hypotheses.seen_in_calls import find_behind_by_stacks
from forkpoint.judge.telling.phrases import wait_for
from forkpoint.judge.telling.stall_headlines import stall_headlines
from forkpoint.model.capture import LiveStack, OnTheWay
from forkpoint.model.frames import (
    bare_name,
    find_parting,
    same_function,
    user_frames,
    user_place,
)
from forkpoint.model.headline import first_words, plain_ranks, with_endings
from forkpoint.model.incident import Divergence, Incident, PartingKind
from forkpoint.model.log import LogKind
from forkpoint.model.op import Stack
from forkpoint.model.timeline import Gap
from forkpoint.model.verdict import Action, Cause, Evidence, Finding, Fix, Probe, Symptom
from forkpoint.model.world import name_ranks

NAME = "host-stall"


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    only_stacks = not has_ops(incident) and find_symptom(incident) is Symptom.SILENT_HANG
    yield from _at_a_prompt(incident)
    if all_said_done(incident) or not (hang_is_shown(incident) or stands_still(incident) or only_stacks):
        return
    if divergence is None:
        yield from _by_stacks_alone(incident)
        yield from _alone_outside(incident)
        yield from _by_side_threads(incident)
        yield from _by_words(incident)
    elif find_came_at_last(incident) is not None:
        return
    elif worked_on_instead(divergence, incident):
        yield from (replace(f, divergence=replace(divergence, odd=f.suspects)) for f in _by_words(incident))
    elif divergence.how is PartingKind.ABSENCE and divergence.shift is None and divergence.odd != divergence.sides[0]:
        odd = divergence.odd or find_behind_by_stacks(divergence, incident)
        stacks = [s for r in odd[:3] if (s := live_stack(r, incident))]
        told = bool(stacks) or divergence.channel is None or _owes_next(divergence, incident)
        told = told and (bool(stacks) or _shows_idle(odd, incident))
        if odd and told and not (stacks and all(_waits(s) for s in stacks)):
            yield replace(_finding(odd, stacks, incident), divergence=replace(divergence, odd=odd))
        elif busy := _at_work_without_dump(divergence, incident):
            yield _finding(tuple(s.rank for s in busy), busy, incident)


def _at_a_prompt(incident: Incident) -> Iterator[Finding]:
    """One rank's debugger waits for a command, and that rank has not come to the call in which others wait."""
    asking = [e for e in incident.capture.events if e.kind is LogKind.DEBUGGER]
    ranks = tuple(sorted({e.rank for e in asking if e.rank is not None}))
    divergence = incident.divergence
    if len(ranks) != 1 or divergence is None or divergence.how is not PartingKind.ABSENCE:
        return
    if ranks[0] in divergence.sides[0] or ranks[0] not in divergence.group.ranks:
        return
    finding = _finding(ranks, [], incident)
    told = f"rank {ranks[0]} waits at the prompt of a debugger"
    yield replace(
        finding,
        confidence=STRONG,
        summary=f"{finding.summary}: {told}",
        evidence=(cite_event(asking[-1]), *finding.evidence),
        probes=(Probe("look at its terminal: `where` shows the line, `continue` lets it go on"),),
        fixes=(Fix("take breakpoint() out, or set PYTHONBREAKPOINT=0 for the job"),),
        next=(),
        headlines=with_endings(told, *wait_for(divergence, ranks, incident)),
    )


def _owes_next(divergence: Divergence, incident: Incident) -> bool:
    """The message is what all replicas of these ranks issued next.

    Two ranks connect at their first message, which is recorded only after that: a rank that owes a message may in fact
    be in one to another peer, and only its stack shows it.
    """
    replicas, channel = Replicas(incident.timeline), divergence.channel
    return channel is not None and all(replicas.owe_message(r, divergence.group, channel) for r in divergence.odd)


def _shows_idle(ranks: tuple[int, ...], incident: Incident) -> bool:
    """Nothing of these ranks is pending. A rank that is blocked inside the enqueue of another call has that call
    recorded as done: if a dump omits finished ops, or its end is lost, the rank looks idle. Not if it lags in two
    groups or more, or holds the GIL.
    """
    if any(_may_wait_for_partner(rank, incident) for rank in ranks):
        return False
    vague = [r for r in ranks if (trace := incident.timeline.traces[r]).is_partial or trace.cut]
    return all(_gil_proof((r,), incident) or _lags_everywhere(r, incident) for r in vague)


def _may_wait_for_partner(rank: int, incident: Incident) -> bool:
    """A rank with which it exchanges messages is blocked in a call that this rank is not part of, or one of the two
    left no complete dump: it may be blocked in a message that is not recorded, so having nothing pending proves
    nothing. Counters do not count messages. Not if its dump is complete and its replicas show that its next call is
    a collective.
    """
    timeline = incident.timeline
    if rank not in timeline.blind and Replicas(timeline).owe_collective(rank):
        return False
    partners = {end for c in timeline.traces[rank].channels for end in (c.source, c.destination)} - {rank}
    if partners and any(end not in timeline.traces or end in timeline.blind for end in (rank, *partners)):
        return True
    stands = timeline.stands
    return any(all(rank not in stand.group.ranks for stand in stands[p]) for p in partners if p in stands)


def _lags_everywhere(rank: int, incident: Incident) -> bool:
    """In each of its groups in which others wait, and in more than one."""
    waited_in = {
        (stand.group, stand.seq)
        for stands in incident.timeline.stands.values()
        for stand in stands
        if not stand.channel
    } or {(wait.group.group, wait.seq) for wait in find_counted_waits(incident.timeline)}
    own = [(group, seq) for group, seq in waited_in if rank in group.ranks]
    behind = [incident.timeline.of_group(group).gap(rank, seq) is Gap.NOT_REACHED for group, seq in own]
    return len({group for group, _ in own}) > 1 and all(behind)


def _waits(stack: LiveStack) -> bool:
    return is_communicating(stack.stack) or waits_for_gpu(stack.stack)


def _at_work_without_dump(divergence: Divergence, incident: Incident) -> list[LiveStack]:
    """The stacks of all members without a dump, if they are at work while the others are in the slot.

    A stack replaces the dump: a rank inside another call has not come to this one, because the others' stacks show that
    a rank stays in it until it is done. A rank whose log reports a failure may be past it.
    """
    missing, present = missing_from(divergence, incident), divergence.sides[0]
    busy = [s for r in missing if is_quiet(r, incident) and (s := live_stack(r, incident)) and is_at_work(s.stack)]
    known = len(busy) == len(missing) == len(divergence.unknown)
    if not busy or divergence.odd or len(divergence.sides) > 1 or not known:
        return []
    waiting = {s.rank for s in incident.capture.stacks if is_communicating(s.stack)}
    outvoted = set(present) <= waiting and len(present) > len(busy) + incident.timeline.unseen
    return busy if outvoted and _must_belong(missing, divergence, incident) else []


def _must_belong(ranks: tuple[int, ...], divergence: Divergence, incident: Incident) -> bool:
    """They are members; or all other possible members are in the call, and only an absent member can block it: no
    connection broke, and no roots or splits can differ.
    """
    return set(ranks) <= set(divergence.group.ranks) or not (
        cut_off(incident) or may_differ_unseen(divergence, incident)
    )


_JOIN = "init_process_group"


def _by_stacks_alone(incident: Incident) -> Iterator[Finding]:
    """No recorded call is pending: every rank is seen, some wait for others, and what blocks the few that do not is
    clear.
    """
    stacks = {s.rank: s for s in sorted(incident.capture.stacks, key=lambda s: (s.file, s.line))}
    on_cpu = uses_gloo(incident)
    held = [s for s in stacks.values() if is_at_work(s.stack) or (on_cpu and is_computing(s.stack))]
    waiting = [s for s in stacks.values() if is_waiting_for_ranks(s.stack)]
    standings = find_standings(incident)  # for a rank without a stack, the traceback of the call in which it gave up
    gave_up = {rank for rank, one in standings.items() if rank not in stacks and is_waiting_for_ranks(one.stack)}
    missing = len(set(incident.timeline.world) - stacks.keys() - gave_up)
    outvoted = len(waiting) + len(gave_up) > len(held) + missing or (
        bool(waiting) and (_are_on_the_way(held, waiting) if not missing else _is_stuck_alone(held, incident))
    )
    if not held or len(held) + len(waiting) < len(stacks) or not outvoted or is_connecting(incident):
        return
    if waiting and all(any(bare_name(f) == _JOIN for f in find_last_call(live.stack)) for live in waiting):
        return  # a rank that is absent when the job begins never joined
    if has_ops(incident) and not stands_still(incident):
        return  # a running job may look like this, too
    yield _finding(tuple(sorted(s.rank for s in held)), sorted(held, key=lambda s: s.rank), incident)


def _is_stuck_alone(held: list[LiveStack], incident: Incident) -> bool:
    """Some ranks are not seen. If the job was stopped, or ranks gave up, while nobody had failed, then a rank that
    waits for a service or a file, with no thread waiting for ranks, is stuck by itself. A lock, a queue or a file
    that is polled may depend on a rank that is not seen.
    """
    events = incident.capture.events
    stopped = any(e.kind in (LogKind.AGENT_STOP, LogKind.CANCELLED, *TIMEOUTS) for e in events)
    failed = any(e.is_failure and e.kind not in TIMEOUTS for e in events)
    alone = (
        len(held) == 1 and is_in_io(held[0].stack) and not any(is_communicating(other) for _, other in held[0].others)
    )
    return alone and stopped and not failed


def _are_on_the_way(held: list[LiveStack], waiting: list[LiveStack]) -> bool:
    """They are in a function that the function in which the others wait called, from an earlier line: they just have
    not come yet.
    """
    return all(_is_before(one.stack, other.stack) for one in held for other in waiting)


def _is_before(stack: Stack, waiting: Stack) -> bool:
    parting = find_parting(stack, waiting)
    return parting is not None and same_function(*parting[1:]) and parting[1].line < parting[2].line


def _alone_outside(incident: Incident) -> Iterator[Finding]:
    """All ranks but one gave up waiting at one line. That one reports no failure, and its stack is in its own code; or it has no
    stack, and a thread of it had ended, or it did not print that it reached the round of the others, or by the source their call
    comes next after its last line.
    """
    rank, standings = find_who_did_not_come(incident), find_standings(incident)
    others = set(incident.timeline.world) - {rank}
    if rank is None or not others <= standings.keys() or not is_quiet(rank, incident):
        return
    waiting = [standings[r] for r in others if is_waiting_for_ranks(standings[r].stack)]
    own, rounds, thread = (
        live_stack(rank, incident),
        find_only_behind(rank, incident),
        find_failed_thread(rank, incident),
    )
    if len({one.place for one in waiting}) != 1:
        return
    if own is not None:
        outside = not is_waiting_for_ranks(own.stack) and not waits_for_gpu(own.stack)
        yield from [_finding((rank,), [own], incident)] if outside and not is_at_work(own.stack) else []
    elif thread is not None and len(waiting) == len(others):
        place = user_place(thread.stack)
        ended = f"a thread of rank {rank} ended by {thread.exception}{f' at {place}' if place else ''}"
        cited = (cite_event(thread), *(one.evidence for one in waiting[:2]))
        never = ", and the rank did not reach the call in which the others waited until they gave up"
        finding = replace(_finding((rank,), [], incident), summary=f"{ended}{never}", evidence=cited)
        fix = Fix("let the thread hand its exception to the main thread, which raises it where it waits for the thread")
        yield replace(finding, action=Action.FIX_CODE, fixes=(fix,), headlines=with_endings(ended, never))
    elif rounds is not None and len(waiting) == len(others) and all(map(waits_for_all, waiting)):
        came = f"rank {rank} did not reach the round in which the others waited for it"
        others_said = [rounds.cited[r] for r in sorted(rounds.last) if r != rank]
        cited = (rounds.cited[rank], *others_said[:1], *(one.evidence for one in waiting[:2]))
        finding = replace(_finding((rank,), [], incident), summary=f"{came} until they gave up", evidence=cited)
        yield replace(finding, headlines=with_endings(came, " until they gave up"))
    elif (way := find_way_to(rank, waiting[0].place, incident)) is not None and len(waiting) == len(others):
        yield _held_on_its_way(way, waiting, incident)


def _held_on_its_way(way: OnTheWay, waiting: list[Standing], incident: Incident) -> Finding:
    rank, place, line = way.rank, user_place(waiting[0].stack), find_lines(incident)[way.rank][-1]
    there = f"the call{f' at {place}' if place else ''}"
    told = f'rank {rank} printed "{first_words(way.text)}", and by the source {there} comes next'
    said = f'; "{first_words(line.says)}" was its last line' if line.where != f"line {way.line}" else ""
    never = f"; it never came there, where the others waited until they gave up{said}"
    known = Evidence(way.file, rank, f"line {way.line}", way.text)
    cited = tuple(dict.fromkeys((known, line, *(one.evidence for one in waiting[:3]))))
    plain = f"rank {rank} never came to {there} in which the other {len(waiting)} waited until they gave up"
    finding = replace(_finding((rank,), [], incident), summary=f"{told}{never}", evidence=cited)
    return replace(finding, headlines=(f"{plain}: it is stuck on its host", plain))


def _by_side_threads(incident: Incident) -> Iterator[Finding]:
    """Every main thread waits at one line for a thread of its own. In all but a few ranks that thread waits for others."""
    stacks = {s.rank: s for s in sorted(incident.capture.stacks, key=lambda s: (s.file, s.line))}
    everyone = stacks.keys() >= set(incident.timeline.world) and incident.timeline.unseen <= 1
    if not everyone or len({s.stack for s in stacks.values()}) != 1 or not all(map(_is_held, stacks.values())):
        return
    for name in sorted(set.intersection(*({name for name, _ in s.others} for s in stacks.values()))):
        inside = {rank: next(stack for other, stack in s.others if other == name) for rank, s in stacks.items()}
        waiting = [rank for rank, stack in inside.items() if is_communicating(stack)]
        held = sorted(rank for rank in inside if rank not in waiting)
        if held and len(waiting) > len(held) + incident.timeline.unseen:
            frames = user_frames(inside[held[0]])
            live = [replace(stacks[rank], stack=(*inside[rank],), thread=name) for rank in held if frames]
            if live:
                yield _finding(tuple(held), live, incident)
            return


def _is_held(stack: LiveStack) -> bool:
    """It waits for a lock, an event, a queue or a future, not for ranks or its GPU."""
    return is_at_work(stack.stack) and not is_in_storage(stack.stack[:1])


def _by_words(incident: Incident) -> Iterator[Finding]:
    """A rank that retried something again and again while the others gave up; or rank 0 names the ranks that did not
    come to a barrier, and they were alive until their launcher stopped them.
    """
    if (worked := find_worked_on(incident)) and worked.retries:
        who, was = name_ranks(worked.ranks), verb(worked.ranks, "was", "were")
        late = f"{worked.seconds} s after the last line of {worked.waited}"
        gave_up = f"{who} {was} still trying the same thing again {late}, which waited for it and gave up after {worked.timeout_ms / 1000:g} s"
        plain = f"{plain_ranks(worked.ranks)} kept trying the same thing again while {worked.waited} waited and gave up"
        finding = replace(_finding(worked.ranks, [], incident), summary=gave_up, evidence=worked.evidence)
        yield replace(finding, headlines=with_endings(plain, f" after {worked.timeout_ms / 1000:g} s"))
        return
    ranks, told = find_missed(incident)
    alive = were_alive(ranks, incident)
    if not alive or came_later(ranks, incident) or 2 * len(ranks) >= len(incident.timeline.world):
        return
    waited = f"the others waited {told[0].detail('ms')} ms there"
    finding = _finding(ranks, [], incident)
    yield replace(
        finding,
        summary=f"{name_ranks(ranks)} did not reach a barrier and did not fail either; {waited}",
        evidence=(*(cite_event(e) for e in told[:2]), *alive[:2]),
        headlines=(f"{plain_ranks(ranks)} did not reach a barrier, and did not fail either; the others gave up there",),
    )


def _finding(behind: tuple[int, ...], stacks: list[LiveStack], incident: Incident) -> Finding:
    divergence = incident.divergence
    gil = _gil_proof(behind, incident) if divergence else []
    proof = (*(cite_stack(s) for s in stacks), *gil)
    slot = describe_slot(divergence) if divergence else "the call in which the others wait"
    who = "it" if len(behind) == 1 else f"rank {stacks[0].rank}" if stacks else ""
    doing = f": {who} is {describe_stack(stacks[0].stack)}" if stacks else ""
    dumped = all(r in incident.timeline.traces for r in behind)
    done = "finished every earlier op but never issued" if divergence and dumped else "did not reach"
    return Finding(
        detector=NAME,
        cause=Cause.HOST_STALL,
        suspects=behind,
        confidence=_confidence(incident, proven=bool(proof) and dumped),
        summary=f"{name_ranks(behind)} {done} {slot}{doing}",
        action=_action(stacks, held=bool(gil)),
        evidence=(*proof, *(cite_divergence(divergence, incident) if divergence else ())),
        divergence=divergence,
        probes=(Probe(stack_of(behind[:1], incident)),),
        fixes=(Fix("move the work that holds this rank off the training thread, or give it a time limit"),),
        next=() if stacks else (f"py-spy dump --native --pid <pid of rank {behind[0]}>",),
        headlines=stall_headlines(behind, stacks, incident),
    )


def _confidence(incident: Incident, *, proven: bool) -> float:
    if incident.divergence is None:
        return LIKELY
    if proven:
        return DECIDED
    return STRONG if find_symptom(incident) else LIKELY


def _action(stacks: list[LiveStack], *, held: bool) -> Action:
    """If a rank computes, holds the GIL or waits for a lock, the code is to blame; without a stack, storage remains
    possible.
    """
    if held or (stacks and not any(is_in_storage(s.stack) for s in stacks)):
        return Action.FIX_CODE
    return Action.FIX_CODE_OR_STORAGE


def _gil_proof(ranks: tuple[int, ...], incident: Incident) -> list[Evidence]:
    """What the process itself logged. A dump without stacks, or one that timed out, is no proof: a rank that is blocked
    inside the enqueue of a call leaves those, too.
    """
    return [cite_event(e) for r in ranks[:3] for e in events_of(r, incident, LogKind.GIL_HELD)[:2]]
