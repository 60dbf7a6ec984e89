"""A process died, was killed, or stopped writing.

What it looks like
    A rank's log ends in a signal, a crash, "out of memory" or an uncaught exception, before anyone complains about a peer;
    or its launcher saw it end first, and stopped the others because of it; or others say that a peer closed its
    connection, and only this rank does not mention the failure; or the file for its stack is empty, while the waiting ranks
    wrote theirs. The kernel log of its node may say why: it killed the process for memory, or its GPU failed (an Xid) while
    the rank's own log shows a failure there. Half of the ranks or more are named only if their node's agent stopped them,
    or if each reports its own end and every other rank has a log. Or its last line comes from a place from which,
    according to the source, its program only ends with a failure.

Why it happens
    The kernel's or the scheduler's kill, memory, a crash in native code, a node that went down, a stopped process; a
    record or a file on one rank on which its code fails.

What rules it out
    Consequences of another rank's end: an abort after a watchdog timeout, a connection closed by a peer, the
    launcher's SIGTERM to the siblings of a failed process. An exception after another that was handled, or one that DDP
    raised because a part of the model was not used: the rank had left the path before (divergent-path). A size that its
    library refused before the abort. A launcher that saw another rank fail first, whose log is missing. No log of the rank
    at all, an empty one, or one that ends in the middle of a line: then nothing is known about it.
    Its log says that it dumped: the dump was not collected. An Xid on a GPU that no rank used, at another time, or that
    is only a consequence of another event: a note. NCCL RAS, which lists who does not answer, supports this and never
    decides it.

Fix
    Fix the code that raised. Or find what killed the process (dmesg, scheduler, cgroup memory). A retry is recommended only
    if something outside the program killed it, and a node is given back only if a hardware Xid and the rank's own failure
    on that GPU agree.
"""

from collections.abc import Iterator

from forkpoint.judge.facts.calls import find_last_slot
from forkpoint.judge.facts.cite import (
    DECIDED,
    LIKELY,
    STRONG,
    cite_divergence,
    cite_event,
    cite_remark,
    describe_slot,
    verb,
)
from forkpoint.judge.facts.departures import Departed, Departure, find_departed, missing_from
from forkpoint.judge.facts.left_waiting import EndedEarly, find_ended_early, find_left_waiting
from forkpoint.judge.facts.machines import find_unanswering
from forkpoint.judge.telling.path_headlines import tell_departure
from forkpoint.judge.telling.phrases import wait_for
from forkpoint.model.headline import first_words, plain_ranks, with_endings
from forkpoint.model.incident import Divergence, Incident, PartingKind
from forkpoint.model.log import LogKind
from forkpoint.model.verdict import Action, Cause, Evidence, Finding, Fix, Probe
from forkpoint.model.world import name_ranks

NAME = "rank-lost"
_SHOWN = 3
_SILENT = "its log ends without mentioning the failure"
_KILLS = frozenset({"SIGKILL", "SIGTERM"})
"""Sent from outside: a process does not end itself this way."""
_LOST = (Departure.DIED, Departure.KILLED, Departure.WENT_SILENT, Departure.GPU_FAILED)


def find(incident: Incident) -> Iterator[Finding]:
    divergence = incident.divergence
    if divergence is not None and divergence.how not in (PartingKind.ABSENCE, PartingKind.STUCK):
        return
    ended = find_ended_early(incident)
    if ended is not None and ended.failed:
        yield _ended_with_failure(ended)
        return
    if _may_never_have_come(incident):
        return
    missing = missing_from(divergence, incident)
    left = find_left_waiting(incident)
    lost = [
        d
        for d in find_departed(incident)
        if d.how in _LOST and (d.rank in missing or _was_first(d, missing, incident))
        if d.event is not None or left is None or d.rank not in left.ranks  # its program finished by itself
    ]
    if not lost or (2 * len(lost) >= len(incident.timeline.world) and not _may_be_many(lost, incident)):
        return
    ranks = tuple(d.rank for d in lost)
    fork, mixed = _fork(incident), incident.capture.may_mix_attempts
    divergence = fork or (None if mixed else find_last_slot(PartingKind.ABSENCE, ranks, incident))
    others = "others wait" if fork else "the others were last"
    where = f"; {others} at {describe_slot(divergence)}" if divergence else ""
    yield Finding(
        detector=NAME,
        cause=Cause.RANK_LOST,
        suspects=ranks,
        confidence=min(_confidence(d, incident) for d in lost),
        summary=f"{_tell(lost)}{where}",
        action=_action(lost),
        evidence=(
            *(e for d in lost[:4] for e in _cite(d, incident)),
            *(cite_divergence(divergence, incident) if divergence else ()),
        ),
        divergence=divergence,
        probes=(Probe(_probe(lost[0])),),
        fixes=(Fix(_fix(lost[0])),),
        next=_wanted(lost[0]),
        headlines=_headlines(lost, incident),
    )


def _ended_with_failure(ended: EndedEarly) -> Finding:
    return Finding(
        detector=NAME,
        cause=Cause.RANK_LOST,
        suspects=tuple(sorted(ended.ranks)),
        confidence=LIKELY,
        summary=ended.tell(),
        action=Action.FIX_CODE,
        evidence=ended.evidence,
        fixes=(Fix("agree on the failure on all ranks before one of them ends its program, so that all end together"),),
        headlines=ended.headlines(),
    )


def _may_never_have_come(incident: Incident) -> bool:
    """A rendezvous failed, one of this attempt, after the agent had seen workers end or had ended them."""
    ends = (LogKind.AGENT_FAILURE, LogKind.AGENT_STOP)
    first = {e.file: e.line for e in reversed(incident.capture.events) if e.kind in ends}
    met = [e for e in incident.capture.events if e.kind is LogKind.RENDEZVOUS]
    return any(e.line < first.get(e.file, e.line + 1) for e in met)


def _was_first(lost: Departed, missing: tuple[int, ...], incident: Incident) -> bool:
    """The launcher saw it killed before any other failed, and no dump shows for whom the waiting ranks waited."""
    killed = lost.exit is not None and lost.exit.is_first and lost.exit.signal == "SIGKILL"
    return killed and bool(missing) and lost.rank not in incident.timeline.traces


def _headlines(lost: list[Departed], incident: Incident) -> tuple[str, ...]:
    """How they ended, if all ended in the same way."""
    if all(one.how is Departure.DIED for one in lost):
        return tell_departure(lost, _fork(incident), incident)
    ranks = tuple(one.rank for one in lost)
    wait = wait_for(_fork(incident), ranks, incident)
    ends = {_plain_end(one, ranks) for one in lost}
    told = ends if len(ends) == 1 else ()
    gone = f"{plain_ranks(ranks)} {verb(ranks, 'is', 'are')} gone"
    return tuple(text for main in (*told, gone) for text in with_endings(main, *wait))


def _plain_end(lost: Departed, ranks: tuple[int, ...]) -> str:
    """As if all `ranks` had ended like this one."""
    was, its = f"{plain_ranks(ranks)} {verb(ranks, 'was', 'were')}", verb(ranks, "its", "their")
    gone = f"{plain_ranks(ranks)} {verb(ranks, 'is', 'are')} gone or stopped"
    if lost.fault:
        return f"{was} lost with {its} GPU: {lost.fault.name}"
    if lost.kill:
        return f"{was} killed by the out-of-memory killer of {lost.kill.host or 'its node'}"
    if lost.asked:
        return f"{gone}: {verb(ranks, 'it', 'they')} left no dump and did not answer when asked for a stack"
    if lost.exit and lost.event is lost.exit.event:
        stopped = lost.event is not None and lost.event.pattern == "agent-stopped"
        return f"{was} stopped with the agent of {its} node" if stopped else f"{was} ended by {lost.exit.signal}"
    if lost.event:
        words = first_words(lost.event.text)
        return f"{was} lost: {words}" if words else f"{was} lost"
    left = verb(ranks, "it left no dump, and its log ends", "they left no dumps, and their logs end")
    return f"{gone}: {left} without mentioning a failure"


def _may_be_many(lost: list[Departed], incident: Incident) -> bool:
    """Half of the ranks or more can be lost together: with the agent of their node, or, according to their own logs, if
    a log of every other rank was given and reports no end of its own.
    """
    share_an_agent = len({d.exit.event if d.exit else None for d in lost}) == 1 and lost[0].exit is not None
    heard = {rank for _, rank in (*incident.capture.logs, *incident.capture.empty_logs)}
    others = set(incident.timeline.world) - {d.rank for d in lost}
    spoke = all(d.event is not None and d.event.rank == d.rank for d in lost)
    return share_an_agent or (spoke and bool(others) and others <= heard)


def _tell(lost: list[Departed]) -> str:
    """A sentence for ranks that ended together in the same way."""
    ended: dict[str, list[int]] = {}
    for one in lost:
        how = _literal(one.told) if one.how is Departure.DIED else _how(one)
        ended.setdefault(how, []).append(one.rank)
    told = [
        f"{name_ranks(ranks)} {how.format(was=verb(ranks, 'was', 'were'), its=verb(ranks, 'its log ends', 'their logs end'))}"
        for how, ranks in ended.items()
    ]
    more = [f"{len(told) - _SHOWN} more ranks were lost otherwise"] if len(told) > _SHOWN else []
    return "; ".join((*told[:_SHOWN], *more))


def _how(lost: Departed) -> str:
    """How they ended, with `{was}` in place of the verb."""
    if lost.fault:
        how = f"{lost.fault.told}, and {_own_end(lost)}"
    elif lost.kill:
        return f"{{was}} killed by the out-of-memory killer of {_literal(lost.kill.host)}"
    elif lost.asked:
        return "left no dump and, unlike the others, did not answer when asked for a stack: gone or stopped"
    elif lost.exit and lost.event and lost.event is lost.exit.event:
        if lost.event.pattern == "agent-stopped":
            return f"{{was}} taken away: the agent of the node was told to stop ({lost.exit.signal})"
        alone = lost.event.kind is LogKind.EXITED and lost.event.rank is not None  # a table without times
        first = "as the only one that a signal ended" if alone else "the first failure that the launcher saw"
        return f"{{was}} ended by {lost.exit.signal}, {first}"
    elif lost.event:
        how = lost.event.text
    else:
        return "left no dump, and {its} without mentioning the failure"
    return f"{{was}} lost: {_literal(how)}"


def _literal(text: str | None) -> str:
    """Escapes braces in evidence, so that `format` leaves them alone."""
    return (text or "its host").replace("{", "{{").replace("}", "}}")


def _own_end(lost: Departed) -> str:
    if lost.exit and lost.event is lost.exit.event:
        return f"its launcher saw it end by {lost.exit.signal}"
    return f"its log says: {lost.event.text}" if lost.event else _SILENT if lost.silent else "it left no dump"


def _fork(incident: Incident) -> Divergence | None:
    """Where the others wait. Not known if the dumps may be of another attempt than the logs."""
    return None if incident.capture.may_mix_attempts else incident.divergence


def _confidence(lost: Departed, incident: Incident) -> float:
    """Two independent kinds of evidence are decisive: the machine's message and the rank's own log."""
    if lost.how is Departure.DIED:
        return STRONG if _fork(incident) else LIKELY
    own = lost.event is not None or lost.silent
    if (lost.fault is not None and lost.fault.timely) or lost.kill is not None:
        return DECIDED if own else STRONG
    return STRONG if lost.event or lost.rank in find_unanswering(incident, len(incident.timeline.world)) else LIKELY


def _action(lost: list[Departed]) -> Action:
    wanted = {_action_of(d) for d in lost}
    return wanted.pop() if len(wanted) == 1 else Action.INVESTIGATE


def _action_of(lost: Departed) -> Action:
    if lost.fault:
        return lost.fault.action(failed=lost.event is not None or lost.silent)
    if lost.how is Departure.DIED:
        return Action.FIX_CODE
    from_outside = (lost.exit and lost.exit.signal in _KILLS) or (lost.event and lost.event.detail("signal") in _KILLS)
    return Action.REPLACE_OR_RETRY if from_outside and not lost.kill else Action.INVESTIGATE


def _probe(lost: Departed) -> str:
    if lost.how is Departure.DIED:
        return "log the sample, file or index that the line which raised works on, on that rank, right before it"
    return "dmesg -T | grep -i -E 'killed process|xid' on its node; the scheduler's record of its exit"


def _fix(lost: Departed) -> str:
    if lost.fault:
        return f"forkpoint explain xid{lost.fault.remark.xid}: what this error means and who acts on it"
    if lost.kill:
        return "give the process more host memory, or find what grew: loaders, pinned buffers, a checkpoint in memory"
    if lost.asked:
        return "look at the process on its node: continue it if it is stopped (`ps` shows T), else leave out the node"
    if lost.event and lost.event.kind is LogKind.OUT_OF_MEMORY:
        return "make the rank need less memory: a smaller batch, or one whose size does not depend on its data"
    if lost.how is Departure.DIED:
        return "mend what raised; data on which it may fail again can be looked through on all ranks before the loop"
    return "find out who ended the process before it is started again"


def _wanted(lost: Departed) -> tuple[str, ...]:
    if lost.fault or lost.kill or lost.how is Departure.DIED:
        return ()  # the node, or the rank itself, has reported it
    if lost.asked:
        return (f"ps -o pid,stat,wchan:30 -p <pid of rank {lost.rank}> on its node, and dmesg there",)
    wanted = "the exit code" if lost.silent else "the last 50 lines of the log"
    return (f"{wanted} of rank {lost.rank}, and dmesg of its node",)


def _cite(lost: Departed, incident: Incident) -> Iterator[Evidence]:
    unanswering = find_unanswering(incident, len(incident.timeline.world))
    remarks = (lost.fault.remark if lost.fault else None, lost.kill, unanswering.get(lost.rank))
    yield from (cite_remark(remark, lost.rank) for remark in remarks if remark)
    if lost.event:
        yield cite_event(lost.event)
    elif lost.asked:
        yield Evidence(lost.asked, lost.rank, "end", "empty: it was asked for its stack, and the others answered")
    elif lost.silent:
        file = next((f for f, r in incident.capture.logs if r == lost.rank), "")
        yield Evidence(file, lost.rank, "end", "does not mention the failure that other ranks report")
