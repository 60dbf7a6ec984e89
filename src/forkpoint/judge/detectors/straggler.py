"""Same order, only late: the timeout is shorter than the work.

What it looks like
    All members issued the same op, one of them later than the others by more than the group's timeout. Logs alone: one rank
    continues with work that it alone does, for longer than the timeout after which others gave up in a call of all ranks;
    it may come to that call in the end, when the others have gone.
    Dumps and logs: a dump was written before its rank issued the call; its log continues for longer than the timeout, and
    ends with a closed connection in that call.

Why it happens
    A long step on one rank: evaluation, compilation, a checkpoint, a slow node; or a timeout set too short for it.

What rules it out
    It never came (host-stall). It came within the timeout (gpu-stall, transport). It issued another op.

Fix
    Raise the group's timeout above the longest legitimate wait, or take the slow work out of the step.
"""

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.judge.facts.blame import find_closings
from forkpoint.judge.facts.calls import late_ranks
from forkpoint.judge.facts.cite import LIKELY, STRONG, cite_divergence, cite_event, describe_slot, verb
from forkpoint.judge.facts.late_ranks import (
    CameAtLast,
    came_later,
    find_came_at_last,
    find_late_by_own_clock,
    find_missed,
    find_worked_on,
    worked_on_instead,
)
from forkpoint.judge.facts.stragglers import find_arrivals, find_late_at_one_line
from forkpoint.judge.telling.phrases import others, shared_call
from forkpoint.model.frames import user_place
from forkpoint.model.headline import plain_place, plain_ranks
from forkpoint.model.incident import Divergence, Incident, PartingKind
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.verdict import Action, Cause, Evidence, Finding, Fix, Probe
from forkpoint.model.world import name_ranks

NAME = "straggler"


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    if divergence is None:
        yield from _by_words(incident)
    elif (came := find_came_at_last(incident)) is not None and came.worked_longer:
        yield _came_at_last(came, divergence, incident)
    elif worked_on_instead(divergence, incident):
        yield from (replace(f, divergence=replace(divergence, odd=f.suspects)) for f in _by_words(incident))
    if divergence is None or divergence.how is not PartingKind.STUCK:
        return
    late = late_ranks(divergence, incident)
    if not late:
        return
    ranks = tuple(sorted(late))
    yield Finding(
        detector=NAME,
        cause=Cause.STRAGGLER,
        suspects=ranks,
        confidence=STRONG,
        summary=f"{name_ranks(ranks)} reached {describe_slot(divergence)} {_up_to(late)} s after the others, later than the timeout",
        action=Action.RAISE_TIMEOUT,
        evidence=(*cite_divergence(divergence, incident), *_cite_habit(ranks, incident)),
        divergence=divergence,
        probes=(Probe("time the work before this op on the late rank"),),
        fixes=(Fix("raise the timeout of this group above the longest honest wait, or shorten the work before it"),),
        headlines=(
            (
                f"{plain_ranks(ranks)} reached {shared_call(divergence, incident)} {_up_to(late)} s after "
                f"{others([r for r in divergence.sides[0] if r not in late], ranks, incident)}, later than the timeout allows"
            ),
        ),
    )


def _up_to(late: dict[int, float]) -> str:
    return f"{'up to ' if len(late) > 1 else ''}{max(late.values()):.1f}"


def _by_words(incident: Incident) -> Iterator[Finding]:
    """Logs alone: who kept working while the others waited, or came to a barrier after they had given up."""
    if (worked := find_worked_on(incident)) and not worked.retries:
        who, was, it = name_ranks(worked.ranks), verb(worked.ranks, "was", "were"), verb(worked.ranks, "it", "them")
        told = f"{who} {was} still working {worked.seconds} s after the last line of {worked.waited}, which waited for {it}"
        gave_up = f"gave up after {worked.timeout_ms / 1000:g} s"
        plain = (
            f"{plain_ranks(worked.ranks)} {was} still working when {worked.waited}, which waited for {it}, {gave_up}"
        )
        yield _told(worked.ranks, f"{told} and {gave_up}", worked.evidence, (plain,))
        return
    if (late := find_late_by_own_clock(incident)) is not None:
        came = f"{name_ranks(late.ranks)} worked on for {late.seconds} s before {verb(late.ranks, 'it', 'they')} reached the call"
        gone = f"{late.waited} had given up there after {late.timeout_ms / 1000:g} s"
        plain = f"{plain_ranks(late.ranks)} worked on for {late.seconds} s before the call in which {late.waited}"
        yield _told(
            late.ranks, f"{came}; {gone}", late.evidence, (f"{plain} gave up after {late.timeout_ms / 1000:g} s",)
        )
        return
    if (came := _by_counters(incident)) is not None:
        yield came
        return
    late = find_late_at_one_line(incident)
    # Of two ranks that lost a connection, one may have waited all the time: its peer gave up a moment before it.
    if len(late) == 1 and 2 * (len(late) + incident.timeline.unseen) < len(incident.timeline.world):
        waited = [e for e in incident.capture.events if e.kind is LogKind.PEER_TIMEOUT]
        told = f"every rank was at {user_place(waited[0].stack)}; {name_ranks(late)} came when the others had timed out there and gone"
        closed = [e for e in find_closings(incident) if e.rank in late]
        plain = f"{plain_ranks(late)} reached {plain_place(waited[0].stack) or 'the call'} when the others had timed out there and gone"
        yield _told(late, told, tuple(cite_event(e) for e in (*closed[:2], *waited[:2])), (plain,))
        return
    ranks, told_by = find_missed(incident)
    came = came_later(ranks, incident)
    if ranks and came and 2 * len(ranks) < len(incident.timeline.world):
        told = f"{name_ranks(ranks)} reached a barrier only after the others had waited {told_by[0].detail('ms')} ms and given up"
        plain = f"{plain_ranks(ranks)} reached a barrier only after the others had waited there and given up"
        yield _told(ranks, told, (*(cite_event(e) for e in told_by[:2]), *(cite_event(e) for e in came[:2])), (plain,))


def _came_at_last(came: CameAtLast, divergence: Divergence, incident: Incident) -> Finding:
    """Its dump is older than the call that it made in the end."""
    ranks, slot = divergence.odd, shared_call(divergence, incident)
    said = f"its log goes on for {came.seconds} s after the others' and ends in that call, on a closed connection"
    told = f"{name_ranks(ranks)} came to {describe_slot(divergence)} when the others had waited {came.timeout_ms / 1000:g} s there and given up: {said}"
    plain = f"{plain_ranks(ranks)} reached {slot} when the others had given up there after {came.timeout_ms / 1000:g} s"
    cited = (*(cite_event(e) for e in came.told[:3]), *cite_divergence(divergence, incident))
    return replace(_told(ranks, told, cited, (plain,)), confidence=STRONG, divergence=divergence)


def _by_counters(incident: Incident) -> Finding | None:
    """All ranks but one timed out in a group. According to its own log, that one had not issued the call then, and
    issued it later.
    """
    gave_up = {
        e.rank: e for e in incident.capture.events if e.kind is LogKind.WATCHDOG_TIMEOUT and e.work and e.work.seq
    }
    rest = [rank for rank in incident.timeline.world if rank not in gave_up]
    if len(rest) != 1 or len(gave_up) < 2 or incident.timeline.unseen > 1:
        return None
    seq = min(e.work.seq for e in gave_up.values() if e.work and e.work.seq)
    counted = [e for e in incident.said.get(rest[0], ()) if e.counters and _is_of_default_group(e)]
    before = [e for e in counted if e.counters and e.counters.enqueued < seq]
    after = [e for e in counted if e.counters and e.counters.enqueued >= seq and before and e.line > before[0].line]
    if not after or not all(_is_of_default_group(e) for e in gave_up.values()):
        return None
    told = f"rank {rest[0]} had not issued seq {seq} when the others timed out there, and issued it later"
    cited = tuple(cite_event(e) for e in (before[0], after[0], *list(gave_up.values())[:2]))
    return _told((rest[0],), told, cited, (f"rank {rest[0]} came only after the others had timed out waiting for it",))


def _is_of_default_group(event: LogEvent) -> bool:
    """Only numbers of the same group may be compared. Lines of old releases name no group, which is fine if there is
    only one.
    """
    return event.group is None or event.group.desc in (None, "", "default_pg")


def _told(ranks: tuple[int, ...], summary: str, evidence: tuple[Evidence, ...], headlines: tuple[str, ...]) -> Finding:
    return Finding(
        detector=NAME,
        cause=Cause.STRAGGLER,
        suspects=ranks,
        confidence=LIKELY,
        summary=summary,
        action=Action.RAISE_TIMEOUT,
        evidence=evidence,
        probes=(Probe("time the work before this call on the late rank"),),
        fixes=(
            Fix("spread the work over all ranks or shorten it; else raise the timeout above the longest honest wait"),
        ),
        headlines=headlines,
    )


def _cite_habit(ranks: tuple[int, ...], incident: Incident) -> Iterator[Evidence]:
    """Shows that a late rank was usually the last one before, too."""
    for arrivals in find_arrivals(incident):
        late = arrivals.straggler
        if late is not None and late.rank in ranks:
            said = f"rank {late.rank} came last {late.times} of the last {arrivals.met} times that {arrivals.group} met"
            where = f" at {arrivals.site}" if arrivals.site else ""
            says = f"{said}{where}, {late.usual_ns / 1e6:.0f} ms after the others"
            yield Evidence(incident.timeline.traces[late.rank].file, late.rank, "last entries", says)
