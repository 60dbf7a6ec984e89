"""The strongest honest statement where only logs speak: who timed out where, who had not come, who said nothing."""

from forkpoint.log_progress import LogView, RankProgress
from forkpoint.model.incident import Incident
from forkpoint.model.log import LogKind
from forkpoint.model.ranks import name_ranks

LATE = 2
"""A watchdog that fires after twice the timeout or more was held up itself: it looks every tenth of a second."""


def odd_in_logs(view: LogView, incident: Incident) -> tuple[int, ...]:
    """Ranks that had not enqueued the op, brought another one or were past it, if they are few and all are heard."""
    few = sorted({p.rank for p in view.behind or view.other or view.ahead})
    waiting = {p.rank for p in view.waiting}
    unheard = set(incident.timeline.world) - waiting - set(few)
    return tuple(few) if len(waiting) > len(few) + len(unheard) + incident.timeline.unseen else ()


def state_logs(view: LogView, incident: Incident) -> str:
    said = [_state_waiting(view), *_state_behind(view), *_state_others(view), *_state_ahead(view), *_state_kind(view)]
    silent = _silent(view, incident)
    if silent:
        said.append(f"{name_ranks(silent)} said nothing of it, which is no guilt")
    return "; ".join(said)


def wanted_after_logs(incident: Incident) -> tuple[str, ...]:
    wanted = ["the dumps of all ranks beside the logs: forkpoint diagnose DUMPS LOGS"]
    if any(e.kind is LogKind.RECORDER_OFF for e in incident.capture.events):
        wanted.append(
            "export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1"
            "   # the log says that nothing was recorded"
        )
    if any(e.kind is LogKind.REPEATED or e.repeated > 1 for e in incident.capture.events):
        wanted.append("export RAY_DEDUP_LOGS=0   # Ray left out lines of other ranks")
    return (*wanted, "py-spy dump --pid PID on every rank while it hangs")


def _state_waiting(view: LogView) -> str:
    first = view.waiting[0]
    work = first.work
    assert work is not None  # a waiting rank timed out in something
    size = f" of {work.numel_in} elements" if work.numel_in is not None else ""
    place = f" seq {view.seq}" if view.seq is not None else ""
    group = f" in {view.desc or f'group {view.group}'}" if view.group is not None else ""
    return f"{_names(view.waiting)} timed out in {work.op}{size}{place}{group} (timeout {work.timeout_ms / 1000:g} s)"


def _state_behind(view: LogView) -> list[str]:
    told = [f"rank {p.rank} had enqueued only {p.counters.enqueued}" for p in view.behind[:3] if p.counters]
    return [f"{', '.join(told)}: it never issued that op"] if told else []


def _state_others(view: LogView) -> list[str]:
    elsewhere = [
        f"rank {p.rank} timed out in {p.work.op}" for p in view.elsewhere[:3] if p.work and view.group is not None
    ]
    return [*elsewhere, *_state_calls(view)]


def _state_calls(view: LogView) -> list[str]:
    if view.group is None and view.elsewhere:
        return ["the lines do not name their groups, so sequence numbers of different ranks must not be compared"]
    calls = [f"rank {p.rank} {p.work.op} of {p.work.numel_in} elements" for p in view.other[:3] if p.work]
    return [f"at the same place {', '.join(calls)}: the calls differ"] if calls else []


def _state_ahead(view: LogView) -> list[str]:
    told = [
        f"rank {p.rank} is already in {p.work.op} of {p.work.numel_in} elements seq {p.work.seq}"
        for p in view.ahead[:3]
        if p.work
    ]
    enqueued = {p.counters.enqueued for p in (*view.waiting, *view.ahead) if p.counters}
    if view.seq is not None and len(enqueued) == 1 and min(enqueued) > view.seq:
        told.append(
            f"all had enqueued up to {min(enqueued)}: the hosts ran on, so it broke on the GPU's side or earlier"
        )
    return told


def _state_kind(view: LogView) -> list[str]:
    said: list[str] = []
    work = view.waiting[0].work
    assert work is not None  # a waiting rank timed out in something
    if view.seq == 1:
        said.append("it is the first op of its group, so this is a start-up problem")
    elif work.numel_in == 1:
        said.append("one element is a barrier or a flag: look for the rank that is still saving, loading or evaluating")
    if work.ran_ms is not None and work.ran_ms >= LATE * work.timeout_ms:
        said.append(f"the watchdog fired after {work.ran_ms / 1000:g} s: it was held up itself")
    return said


def _silent(view: LogView, incident: Incident) -> tuple[int, ...]:
    spoke = {p.rank for p in (*view.waiting, *view.behind, *view.other, *view.ahead, *view.elsewhere)}
    return tuple(r for r in incident.timeline.world if r not in spoke)


def _names(progress: tuple[RankProgress, ...]) -> str:
    return name_ranks(p.rank for p in progress)
