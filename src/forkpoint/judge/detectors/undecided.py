"""Used if no cause is found: says who waits where, who differs, and which evidence would decide. It always answers."""

from collections.abc import Iterator

from forkpoint.judge.facts.cite import cite_divergence, cite_event, describe_slot, inconclusive, verb, what_would_decide
from forkpoint.judge.facts.recorder_settings import how_to_record
from forkpoint.judge.facts.refusal import find_refusal, refused_sizes
from forkpoint.judge.facts.symptom import dumps_are_empty, knows_nothing, recorder_was_off, without_dumps
from forkpoint.judge.telling.phrases import call_of, got_other_size
from forkpoint.model.headline import plain_ranks
from forkpoint.model.incident import Divergence, Incident, PartingKind, Role
from forkpoint.model.log import LogKind
from forkpoint.model.verdict import Action, Finding
from forkpoint.model.world import name_ranks


def find(incident: Incident) -> Iterator[Finding]:
    yield (
        _nothing_known(incident)
        or _recorder_off(incident)
        or _refused_size(incident)
        or _parted_ops(incident)
        or _failed_command(incident)
        or inconclusive(
            _state_nothing(incident), (), what_would_decide(incident), headlines=(_state_nothing(incident),)
        )
    )


def _nothing_known(incident: Incident) -> Finding | None:
    if not knows_nothing(incident):
        return None
    told = (
        "nothing in these files names a rank or a failure: no dump, no stack, no log line of torch, NCCL or the kernel"
    )
    wanted = "the folder with the job's dumps, logs or stacks: forkpoint diagnose DIR; a job that hangs now: forkpoint attach"
    return inconclusive(told, (), (wanted,), headlines=(told,))


def _recorder_off(incident: Incident) -> Finding | None:
    if not dumps_are_empty(incident) or incident.capture.stacks:
        return None
    off = "the flight recorder was off"
    why = off if recorder_was_off(incident) else f"nothing had been recorded yet, or {off}"
    summary = f"the dumps hold no entries: {why}, so they say nothing about this failure"
    return inconclusive(summary, (), how_to_record(incident), headlines=(f"the dumps hold no entries: {why}",))


def _refused_size(incident: Incident) -> Finding | None:
    """A library that refuses data is no more at fault than the peer that sent it, unless all others sent what the peer
    did.
    """
    events, divergence = refused_sizes(incident), incident.divergence
    if not events or (divergence is not None and {e.rank for e in events}.isdisjoint(divergence.unknown)):
        return None
    got = got_other_size(events)
    refusal = find_refusal(incident)
    odd = refusal.divergence.odd if refusal else ()
    which = "all others used the same size" if odd else "nothing shows which of them is at fault"
    summary = (
        f"{got}, and the library refused it: two ranks used different sizes "
        f"in one operation, on different paths or with different tensors, and {which}"
    )
    stood = {s.rank for s in incident.capture.stacks}
    wanted = what_would_decide(incident)
    if any(e.rank not in stood for e in events):  # an aborted rank can still print where it was
        wanted = (*wanted, "export PYTHONFAULTHANDLER=1 on every rank: its log then says where it stood")
    cited = tuple(cite_event(event) for event in events[:4])
    return inconclusive(summary, cited, wanted, suspects=odd, action=Action.FIX_CODE, headlines=(got,))


def _parted_ops(incident: Incident) -> Finding | None:
    fork, wanted = incident.divergence, what_would_decide(incident)
    if fork is None:
        return None
    cited = cite_divergence(fork, incident)
    if fork.how is PartingKind.METADATA:  # it is clear who differs, and that the code is to blame, but not how
        odd = tuple(sorted(fork.odd))
        issuing = [c for c in fork.cohorts if c.op]
        plain = ", ".join(f"{plain_ranks(c.ranks)} called {call_of(c, incident)}" for c in issuing[:2])
        return inconclusive(
            _state_calls(fork),
            cited,
            wanted,
            suspects=odd,
            action=Action.FIX_CODE,
            divergence=fork,
            headlines=(plain,) if len(issuing) == 2 else ("ranks made different calls",),
        )
    waits = [c for c in fork.cohorts if c.op and c.role is Role.WAITING]
    seen = tuple(
        f"{plain_ranks(c.ranks)} {verb(c.ranks, 'waits', 'wait')} in {call_of(c, incident)}" for c in waits[:1]
    )
    return inconclusive(_state_wait(fork, incident), cited, wanted, divergence=fork, headlines=seen)


def _failed_command(incident: Incident) -> Finding | None:
    ended = next((e for e in incident.capture.events if e.kind is LogKind.COMMAND_FAILED), None)
    if ended is None or incident.timeline.traces:
        return None
    plain = f"{ended.text}, and nothing that was given shows why"
    wanted = ("the last lines that it printed", *what_would_decide(incident))
    return inconclusive(plain, (cite_event(ended),), wanted, headlines=(plain,))


def _state_nothing(incident: Incident) -> str:
    capture = incident.capture
    if not incident.timeline.traces:
        given = "stacks" if not capture.logs else "logs" if not capture.stacks else "logs and stacks"
        return f"there are no dumps, and {given} do not decide"
    absent = without_dumps(incident)
    if absent:
        return f"the dumps agree, but {verb(absent, 'that', 'those')} of {name_ranks(absent)} {verb(absent, 'is', 'are')} missing"
    return "the dumps agree, and the rest does not decide"


def _state_calls(divergence: Divergence) -> str:
    calls = [
        f"{name_ranks(c.ranks)} called {c.op}{f' {[list(s) for s in c.sizes[:2]]}' if c.sizes else ''}"
        for c in divergence.cohorts
        if c.op
    ]
    known = all(c.stack is not None for c in divergence.cohorts if c.op)
    return (
        f"ranks issued different calls: at {describe_slot(divergence)} {', but '.join(calls[:3])}; "
        f"{'nothing' if known else 'without stacks nothing'} shows whether they took different paths or passed different arguments"
    )


def _state_wait(divergence: Divergence, incident: Incident) -> str:
    issuing = [c for c in divergence.cohorts if c.op]
    first = next((c for c in issuing if c.role is Role.WAITING), issuing[0] if issuing else None)
    slot = describe_slot(divergence)
    who = f"ranks part at {slot}"
    if first is not None:
        did = verb(first.ranks, "waits in", "wait in") if first.role is Role.WAITING else "issued"
        place = slot if divergence.channel else f"{divergence.group}, seq {divergence.seq}"
        who = f"{name_ranks(first.ranks)} {did} {first.op} ({place})"
    silent = tuple(r for r in divergence.unknown if r in without_dumps(incident))
    if silent:
        return f"{who}, and no dump of {name_ranks(silent)} was given"
    return f"{who}, and the evidence does not decide why"
