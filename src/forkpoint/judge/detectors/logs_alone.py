"""What logs say if nothing was recorded: who timed out where, who had not arrived, which failures they report."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from forkpoint.judge.facts.cite import cite_event, fetch_written, inconclusive, verb
from forkpoint.judge.facts.log_progress import LogView, RankProgress, near_ratio, unnamed_timeouts, view_logs
from forkpoint.judge.facts.refusal import refused_sizes
from forkpoint.judge.telling.phrases import got_other_size, raised, without_place
from forkpoint.model.headline import plain_call, plain_ranks, with_endings
from forkpoint.model.incident import Incident
from forkpoint.model.log import FAILURES, LogEvent, LogKind, Work
from forkpoint.model.verdict import Finding
from forkpoint.model.world import name_ranks

# ---------------------------------------------------------------------------------------------------------------------
# Logs that report a failure but no timeout: what they say, which rank's they are, and whether a process ended.

_ENDED = frozenset({
    LogKind.AGENT_FAILURE,
    LogKind.AGENT_STOP,
    LogKind.EXITED,
    LogKind.KILLED,
    LogKind.CRASHED,
    LogKind.CANCELLED,
    LogKind.LEFT,
    LogKind.NODE_FAILED,
})  # fmt: skip
"""A launcher, a scheduler or the process itself says that it is over."""
_GONE = frozenset({LogKind.EXCEPTION, LogKind.ASYNC_ERROR, LogKind.OUT_OF_MEMORY, LogKind.CUDA_ERROR})
"""After these a process is expected to end."""
_TOLD = 3
_TEXT = 110
_SPEAKER = re.compile(r"^(?:\[PG [^\]]{0,200}\] |\S{1,200}+ \[-?\d{1,4}\] \S{1,200}+ NCCL WARN )")


def told_failures(incident: Incident) -> tuple[LogEvent, ...]:
    """The first line of each kind, in the order of the logs."""
    first: dict[str, LogEvent] = {}
    for event in incident.capture.events:
        if event.kind in FAILURES:
            first.setdefault(event.pattern or event.kind, event)
    return tuple(first.values())


def state_failures(incident: Incident) -> str:
    said = [f"{_who(event, incident)}: {_words(event)}" for event in told_failures(incident)[:_TOLD]]
    timed_out = any(e.kind in (LogKind.PEER_TIMEOUT, LogKind.WATCHDOG_TIMEOUT) for e in incident.capture.events)
    first = [] if timed_out else ["no rank timed out in these logs"]
    return "; ".join([*first, *said, *_state_leaving(incident), *_state_running(incident)])


def wanted_after_failures(incident: Incident) -> tuple[str, ...]:
    kinds = {e.kind for e in incident.capture.events}
    wanted = ["the logs and dumps of all ranks: forkpoint diagnose DUMPS LOGS"]
    if LogKind.NETWORK in kinds:
        wanted.append("perfquery -x on both ends of the path, twice   # no node is at fault by one error line")
    if not kinds & _ENDED:
        wanted.append("py-spy dump --pid PID on every rank that still runs; the scheduler's exit codes of the others")
    return tuple(wanted)


def _words(event: LogEvent) -> str:
    """The line without prefixes such as the rank or a library's source location; of a long one, the first sentence."""
    text = without_place(_SPEAKER.sub("", event.text))
    text = (text.partition(". ")[0] if len(text) > _TEXT else text).rstrip(".")
    return text if len(text) <= _TEXT else f"{text[:_TEXT].rpartition(' ')[0]}..."


def _who(event: LogEvent, incident: Incident) -> str:
    alike = {e.rank for e in incident.capture.events if e.kind is event.kind and e.pattern == event.pattern}
    ranks = sorted(rank for rank in alike if rank is not None)
    return plain_ranks(ranks) if ranks else event.speaker.host or "a line without a rank"


def _state_leaving(incident: Incident) -> list[str]:
    left = {e.rank for e in incident.capture.events if e.kind is LogKind.LEFT}
    stuck = sorted({e.rank for e in incident.capture.events if e.kind is LogKind.LEAVING and e.rank is not None} - left)
    return [f"{name_ranks(stuck)} began destroy_process_group and did not finish it"] if stuck else []


def _state_running(incident: Incident) -> list[str]:
    """A job counts as running until each process has exited, or, after a failure, has exited with a nonzero code."""
    kinds = {e.kind for e in incident.capture.events}
    if not kinds & _GONE or kinds & _ENDED:
        return []
    failed = {e.rank for e in incident.capture.events if e.kind in FAILURES}
    others = sorted(incident.heard - failed)
    rest = f"{name_ranks(others)} {verb(others, 'does', 'do')} not mention it; " if others else ""
    ends = "a launcher stops the rest only after one exits with a nonzero code"
    return [f"{rest}no line says that a process ended: {ends}, so the job may still be running"]


# ---------------------------------------------------------------------------------------------------------------------
# What logs say if nothing was recorded: who timed out where, who had not arrived, who did not mention it.

LATE = 2
"""A watchdog that fires after twice the timeout or more was itself delayed: it checks every tenth of a second."""
_DEFAULTS_MS = (600_000, 1_800_000)
"""Default timeouts of NCCL groups since torch 2.2, and before it."""
_CITED = 8
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)$")


def find(incident: Incident) -> Iterator[Finding]:
    """The strongest claim that holds: timeouts of ranks, else timeouts of unknown ranks, else other failures."""
    if incident.divergence is not None:
        return
    view = view_logs(incident)
    unnamed = unnamed_timeouts(incident)
    failures = told_failures(incident)
    if view is not None:
        told = (*view.behind, *view.other, *view.ahead, *view.waiting, *view.elsewhere)
        wanted = _wanted(incident, view.waiting[0].work)
        finding = _finding(_state(view, incident), [p.event for p in told], wanted, _odd(view, incident))
        yield replace(finding, headlines=_headlines(view))
    elif unnamed:
        finding = _finding(_state_unnamed(unnamed), unnamed, _wanted(incident, unnamed[0].work))
        calls = dict.fromkeys(plain_call(e.work.op) for e in unnamed if e.work)
        yield replace(finding, headlines=(f"some ranks timed out in {' and '.join(calls)}, and no line says which",))
    elif failures and not incident.timeline.traces:
        finding = _finding(state_failures(incident), failures, wanted_after_failures(incident))
        refused = refused_sizes(incident)
        said = [f"{_who(failures[0], incident)} failed with {what}" for what in raised(failures[0])]
        said = [got_other_size(refused)] if refused else said
        yield replace(finding, headlines=(*said, "ranks report failures, and none of them a timeout"))


def _headlines(view: LogView) -> tuple[str, ...]:
    """Who timed out where, and who was not there."""
    ranks = sorted({p.rank for p in view.waiting})
    work = view.waiting[0].work
    waited = f"{plain_ranks(ranks)} timed out in {plain_call(work.op if work else None)}"
    behind = sorted({p.rank for p in view.behind})
    never = f", which {plain_ranks(behind)} never issued" if behind else ""
    return with_endings(waited, never)


def _finding(
    summary: str, events: Sequence[LogEvent], wanted: tuple[str, ...], suspects: tuple[int, ...] = ()
) -> Finding:
    return inconclusive(summary, tuple(cite_event(e) for e in events[:_CITED]), wanted, suspects=suspects)


def _odd(view: LogView, incident: Incident) -> tuple[int, ...]:
    """Ranks that had not enqueued the op, used a different one or were past it, if they are few and all ranks have
    logs.
    """
    few = sorted({p.rank for p in view.behind or view.other or view.ahead})
    waiting = {p.rank for p in view.waiting}
    unheard = set(incident.timeline.world) - waiting - set(few)
    return tuple(few) if len(waiting) > len(few) + len(unheard) + incident.timeline.unseen else ()


def _state(view: LogView, incident: Incident) -> str:
    said = [
        _state_waiting(view),
        *_state_behind(view),
        *_state_others(view),
        *_state_ahead(view),
        *_state_hosts(view),
        *_state_kind(view),
        *_state_timeouts(view),
        *_state_spread(view),
    ]
    silent = _silent(view, incident)
    if silent:
        said.append(f"{name_ranks(silent)} did not mention it; silence proves nothing")
    return "; ".join(said)


def _state_unnamed(events: tuple[LogEvent, ...]) -> str:
    """Old releases print a rank's number within the group, and not which group."""
    told = [
        f"{f'number {e.group.group_rank} of its group' if e.group else 'a rank'} in {_name_op(e.work)}"
        for e in events[:4]
        if e.work
    ]
    works = [e.work for e in events if e.work]
    said = [
        f"timeouts of {', '.join(told)} (after {_seconds(works[0].timeout_ms)} s)",
        *_state_late(max(works, key=lambda w: w.ran_ms or 0)),
        *_state_uncompared([w.seq for w in works if w.seq is not None]),
    ]
    return "; ".join(said)


def _wanted(incident: Incident, work: Work | None) -> tuple[str, ...]:
    """What the logs themselves recommend first."""
    wanted = [*fetch_written(incident)]
    if not wanted and any(e.kind is LogKind.RECORDER_OFF for e in incident.capture.events):
        wanted.append(
            "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"
            "   # the log says that nothing was recorded"
        )
    if any(e.kind is LogKind.REPEATED or e.repeated > 1 for e in incident.capture.events):
        wanted.append("export RAY_DEDUP_LOGS=0   # Ray left out lines of other ranks")
    if work is not None and work.seq == 1:
        wanted.append("export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET   # start-up: who does not come")
    wanted.append("the dumps of all ranks beside the logs: forkpoint diagnose DUMPS LOGS")
    if work is not None and work.timeout_ms in _DEFAULTS_MS:
        wanted.append(
            f"{_seconds(work.timeout_ms)} s is torch's default: if you set another, it did not reach this group (new_group has "
            "its own); longer is rarely the fix"
        )
    return (*wanted, "py-spy dump --pid PID on every rank while it hangs")


def _state_waiting(view: LogView) -> str:
    first = view.waiting[0]
    work = first.work
    assert work is not None  # a waiting rank has timed out in some op
    group = f" in {_name_group(view.group, view.desc)}" if view.group is not None else ""
    inside = first.event.group
    numbered = (
        f", number {inside.group_rank} of that group"
        if group and inside and len(view.waiting) == 1 and inside.group_rank != first.rank
        else ""
    )
    return (
        f"{_names(view.waiting)} timed out in {_name_op(work)}{group}{numbered} (timeout {_seconds(work.timeout_ms)} s)"
    )


def _state_behind(view: LogView) -> list[str]:
    told = [f"rank {p.rank} had enqueued only {p.counters.enqueued}" for p in view.behind[:3] if p.counters]
    never = "it" if len(told) == 1 else "they"
    return [f"{', '.join(told)}: {never} never issued that op"] if told else []


def _state_others(view: LogView) -> list[str]:
    alike = _other_sizes(view)
    elsewhere = [
        f"rank {p.rank} timed out in {p.work.op}"
        for p in view.elsewhere
        if p.work and view.group is not None and p not in alike
    ]
    return [*elsewhere[:3], *_state_calls(view), *_state_if_one_group(view, alike)]


def _state_calls(view: LogView) -> list[str]:
    if view.group is None and view.elsewhere:
        works = [p.work for p in (*view.waiting, *view.elsewhere) if p.work]
        return _state_uncompared([work.seq for work in works if work.seq is not None])
    calls = [f"rank {p.rank} {p.work.op} of {p.work.numel_in} elements" for p in view.other[:3] if p.work]
    if not calls:
        return []
    return [f"at the same place {', '.join(calls)}: the calls differ, and a longer timeout only delays that"]


def _state_uncompared(seqs: list[int]) -> list[str]:
    if len(set(seqs)) < 2:
        return []
    said = "no line names its group, so these numbers must not be compared"
    high, low = max(seqs), min(seqs)
    ratio = near_ratio(high, low)
    if ratio is None:
        return [said]
    return [f"{said}: {high} to {low} is nearly {ratio[0]} to {ratio[1]}, probably two groups, not a lagging rank"]


def _other_sizes(view: LogView) -> list[RankProgress]:
    """Same number, same op, another size, but nothing proves that it is the same call."""
    work = view.waiting[0].work
    return [
        p
        for p in view.elsewhere
        if p.work and work and p.work.op == work.op and p.work.seq == work.seq and p.work.numel_in != work.numel_in
        if p.group == view.group or None in (p.group, view.group)
    ]


def _state_if_one_group(view: LogView, alike: list[RankProgress]) -> list[str]:
    work = view.waiting[0].work
    if not alike or work is None or view.seq is None:
        return []
    sizes = ", ".join(f"{p.work.numel_in} on rank {p.rank}" for p in alike[:3] if p.work)
    unless = " and no batch of messages" if work.op == "COALESCED" else ""
    differ = f"at seq {view.seq} the sizes differ ({work.numel_in} on {_names(view.waiting)}, {sizes})"
    return [f"{differ}: a mismatch if these lines are of one group{unless}"]


def _state_ahead(view: LogView) -> list[str]:
    if view.seq is None or not view.ahead:
        return []
    told = [
        f"rank {p.rank} is already in {_name_op(p.work)}, {p.work.seq - view.seq} past it"
        for p in view.ahead[:3]
        if p.work and p.work.seq is not None
    ]
    usual = view.waiting[0].work
    if len(view.ahead) == 1 and view.ahead[0].work and usual and view.ahead[0].work.op != usual.op:
        told.append(f"look for a branch that only rank {view.ahead[0].rank} takes")
    return told


def _state_hosts(view: LogView) -> list[str]:
    """Hosts that issued the same further calls did not part there; further calls of a single rank prove nothing."""
    counted = [p for p in (*view.waiting, *view.ahead) if p.counters]
    enqueued = {p.counters.enqueued for p in counted if p.counters}
    if view.seq is None or len(counted) < 2 or len(enqueued) != 1 or min(enqueued) <= view.seq:
        return []
    last = min(enqueued)
    ran = f"all ranks that say how far they were had enqueued up to {last}, {last - view.seq} calls further"
    return [f"{ran}: their hosts did the same, so the GPU side or an earlier call is to blame"]


def _state_kind(view: LogView) -> list[str]:
    said: list[str] = []
    work = view.waiting[0].work
    assert work is not None  # a waiting rank has timed out in some op
    if view.seq == 1:
        said.append("it is the first op of its group, so this is a start-up problem")
    elif work.numel_in == 1:
        said.append(
            "one element means a barrier or a flag: before you suspect the network, look for a rank that still saves, loads, "
            "evaluates or generates, or that had no batch left"
        )
    return [*said, *_state_late(work)]


def _state_late(work: Work) -> list[str]:
    if work.ran_ms is None or work.ran_ms < LATE * work.timeout_ms:
        return []
    times = round(work.ran_ms / work.timeout_ms)
    return [
        f"the watchdog fired after {work.ran_ms / 1000:.0f} s, {times} times the timeout: it or its host was held up"
    ]


def _state_timeouts(view: LogView) -> list[str]:
    """Groups with different timeouts: setting it for one group does not set it for the others."""
    known = {
        _name_group(p.group, p.desc): p.work.timeout_ms
        for p in (*view.waiting, *view.elsewhere)
        if p.work and p.group is not None
    }
    if len(set(known.values())) < 2:
        return []
    told = ", ".join(f"{name} {_seconds(ms)} s" for name, ms in list(known.items())[:4])
    return [f"each group has its own timeout: {told}"]


def _state_spread(view: LogView) -> list[str]:
    """Ranks that give up minutes apart are also restarted minutes apart."""
    times = [clock for p in view.waiting if p.event.time and (clock := _CLOCK.search(p.event.time))]
    days = {clock.string[: clock.start()] for clock in times}
    if len(times) < len(view.waiting) or len(days) != 1:
        return []
    seconds = [int(clock[1]) * 3600 + int(clock[2]) * 60 + int(clock[3]) for clock in times]
    minutes = (max(seconds) - min(seconds)) // 60
    return [f"they gave up {minutes} min apart by their own clocks"] if minutes else []


def _silent(view: LogView, incident: Incident) -> tuple[int, ...]:
    spoke = {p.rank for p in (*view.waiting, *view.behind, *view.other, *view.ahead, *view.elsewhere)}
    return tuple(r for r in incident.timeline.world if r not in spoke)


def _name_op(work: Work) -> str:
    size = f" of {work.numel_in} elements" if work.numel_in is not None else ""
    return f"{work.op}{size}{f' seq {work.seq}' if work.seq is not None else ''}"


def _name_group(name: str | None, desc: str | None) -> str:
    return desc or f"group {name}"


def _seconds(ms: int) -> str:
    """Not rounded to six digits, as `g` does."""
    return f"{ms / 1000:.3f}".rstrip("0").rstrip(".")


def _names(progress: tuple[RankProgress, ...]) -> str:
    return name_ranks(p.rank for p in progress)
