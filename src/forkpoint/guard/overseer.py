"""Rank 0's part: from a suspicion to evidence, to a verdict, to an alarm; in mode `raise`, to the end of the training."""

import ctypes
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from torch.distributed import distributed_c10d

from forkpoint.guard.messages import Ask, Blind, GuardStore, RankAnswer, RankHealth, decode, encode
from forkpoint.guard.settings import Mode, Settings
from forkpoint.guard.summary import FAN_IN, QUIET_S, Summary, Suspicion, SuspicionReason, suspect, write_evidence
from forkpoint.live.children import (
    Diagnosed,
    Diagnosis,
    NotDiagnosed,
    NotifySettings,
    StoreTask,
    Task,
    keep_incident,
    notify_alone,
)
from forkpoint.live.stall import stall_limit
from forkpoint.model.world import name_ranks
from forkpoint.sinks.notice import origin_of

_COLLECT_S: Final = 2.0
"""Guards answer at their next look, within half a second. A rank that has not may hold the GIL: its silence is evidence."""
_LIMIT_S: Final = 120.0
_CONCLUDE_S: Final = 8.0
_DIAGNOSE_S: Final = 5.0
"""The part of `_CONCLUDE_S` that a diagnosis takes on a busy host."""

# What time cannot undo is reported at once; everything else waits for the threshold.
_CERTAIN: Final = {
    SuspicionReason.MISMATCH: frozenset({"divergent-path", "metadata-mismatch", "order-inversion"}),
    SuspicionReason.STEP: frozenset({"divergent-path"}),
    SuspicionReason.CYCLE: frozenset({"divergent-path", "metadata-mismatch", "order-inversion"}),
    SuspicionReason.DEPARTED: frozenset({"divergent-path", "metadata-mismatch", "rank-lost", "never-joined"}),
}


@dataclass(frozen=True, slots=True)
class Alarm:
    told: Diagnosed
    reason: SuspicionReason
    folder: str
    """The folder with the evidence; "" = it was not kept."""
    when: float
    """Seconds since 1970, by rank 0's clock."""
    ends_after_s: float = 0.0
    """In mode `raise`: how long nothing must have moved before the training is ended. Half of the group's own timeout for
    what may still resolve itself; 0 otherwise."""


@dataclass(slots=True)
class _Inquiry:
    suspicion: Suspicion
    number: int
    """The number of its ask."""
    until: float
    folder: Path
    answers: dict[int, RankAnswer] = field(default_factory=dict[int, RankAnswer])
    diagnosis: Diagnosis | None = None


class Overseer:
    def __init__(self, world_size: int, guard_store: GuardStore, settings: Settings) -> None:
        self._world_size = world_size
        self._guard_store = guard_store
        self._settings = settings
        self._asked = time.time_ns() // 1_000_000
        """The number of the last ask. It starts from the clock: after the store was lost, numbers must not repeat."""
        self._inquiry: _Inquiry | None = None
        self._settled: set[tuple[object, ...]] = set()
        """Suspicions that were investigated, whether they led to an alarm or not."""
        self._told: set[tuple[object, ...]] = set()

    def attend(self, summary: Summary) -> Alarm | str | None:
        """One look. A string says what could not be diagnosed, and why."""
        if self._inquiry is not None:
            return self._go_on(self._inquiry, summary)
        if summary.still_s < QUIET_S:  # the job moved: old suspicions may be raised again
            self._settled = {key for key in self._settled if key[1] is not None}
        suspicion = suspect(summary, self._world_size, self._settings.stall_s, self._settled)
        if suspicion is not None:
            self._inquiry = self._ask(suspicion)
        return None

    def _ask(self, suspicion: Suspicion) -> _Inquiry:
        self._asked += 1
        asked = () if self._world_size <= FAN_IN else tuple(self._asked_ranks(suspicion))
        self._guard_store.publish("ask", encode(Ask(self._asked, asked)))
        return _Inquiry(suspicion, self._asked, time.monotonic() + _COLLECT_S, _scratch())

    def finish(self, gather: Callable[[], Summary]) -> Alarm | str | None:
        """Rank 0 ends normally. A conflict between calls is real whether the job ends or not, so it is still diagnosed."""
        until = time.monotonic() + _CONCLUDE_S
        while self._inquiry is not None and self._inquiry.suspicion.conflict and time.monotonic() < until:
            found = self.attend(gather())
            if found is not None:
                return found
            time.sleep(0.1)
        return None

    def conclude(self, own: RankAnswer, gather: Callable[[], Summary]) -> Alarm | str | None:
        """Rank 0 ends with an exception, usually because of another rank: find out which. Bounded: the process waits."""
        until = time.monotonic() + _CONCLUDE_S
        summary = gather()
        inquiry, failed = self._inquiry, None
        if inquiry is None or inquiry.diagnosis is None:
            self.end()
            inquiry = self._ask(Suspicion(SuspicionReason.DEPARTED))
            while len(summary.odd) < self._world_size and time.monotonic() < until - _DIAGNOSE_S:
                time.sleep(self._settings.every_s)
                summary = gather()
                self._collect(inquiry)
            if not inquiry.answers:  # all have ended: rank 0's own evidence is all there is
                inquiry.answers[own.rank] = own
            failed = self._judge(inquiry, summary)
        while failed is None and inquiry.diagnosis is not None:
            told = inquiry.diagnosis.result()
            if isinstance(told, Diagnosed):
                return self._decide(inquiry, told, summary)
            if told or time.monotonic() > until:
                self._close(inquiry)
                return told.why if told else "no verdict before rank 0 ended; run `forkpoint diagnose` on the logs"
            time.sleep(0.05)
        return failed

    def end(self) -> None:
        if self._inquiry is not None:
            self._close(self._inquiry)

    def _go_on(self, inquiry: _Inquiry, summary: Summary) -> Alarm | str | None:
        if inquiry.diagnosis is None:
            self._collect(inquiry)
            missing = self._expected(summary) - inquiry.answers.keys()
            if missing and time.monotonic() < inquiry.until:
                return None
            if inquiry.suspicion.conflict is None and summary.still_s < inquiry.suspicion.still_s:
                return self._close(inquiry)  # it moved: slow, not stuck
            return self._judge(inquiry, summary)
        told = inquiry.diagnosis.result()
        if told is None:
            return None
        self._settled.add(inquiry.suspicion.key)
        if isinstance(told, NotDiagnosed):
            self._close(inquiry)
            return told.why
        return self._decide(inquiry, told, summary)

    def _collect(self, inquiry: _Inquiry) -> None:
        wanted = [rank for rank in self._asked_ranks(inquiry.suspicion) if rank not in inquiry.answers]
        heard = self._guard_store.read([f"answer/{inquiry.number}/{rank}" for rank in wanted])
        for rank, data in zip(wanted, heard, strict=True):
            answer = decode(data, RankAnswer)
            if answer is not None and answer.rank == rank:
                inquiry.answers[rank] = answer

    def _asked_ranks(self, suspicion: Suspicion) -> range | list[int]:
        """All ranks of a small job; of a large one those that differ, and enough others to tell who is odd."""
        if self._world_size <= FAN_IN:
            return range(self._world_size)
        named = suspicion.conflict.ranks if suspicion.conflict else ()
        return sorted({*named, *range(0, self._world_size, -(-self._world_size // FAN_IN))})

    def _expected(self, summary: Summary) -> set[int]:
        """Ranks worth waiting for."""
        away = {o.rank for o in summary.odd} | set(summary.silent)
        return set(range(self._world_size)) - away if self._world_size <= FAN_IN else set()

    def _judge(self, inquiry: _Inquiry, summary: Summary) -> str | None:
        # A rank that is gone will never come; if all are there, only time tells.
        late = summary.still_s >= stall_limit(self._settings.stall_s, summary.timeout_s)
        stalled = late or inquiry.suspicion.reason is SuspicionReason.DEPARTED
        moving = summary.still_s < QUIET_S
        try:
            write_evidence(inquiry.folder, tuple(inquiry.answers.values()), summary, stalled=stalled, moving=moving)
            source = (self._settings.source,) if self._settings.source else ()
            store = StoreTask(self._settings.store, write=False) if self._settings.store else None
            origin = origin_of("guard", os.environ, socket.gethostname()) if self._settings.notify else None
            task = Task((str(inquiry.folder),), source, store=store, origin=origin)
            inquiry.diagnosis = Diagnosis(task, _LIMIT_S)
        except OSError as error:
            self._settled.add(inquiry.suspicion.key)
            self._close(inquiry)
            return f"{inquiry.suspicion.reason} suspected, but {inquiry.folder} cannot be written ({error.strerror})"
        return None

    def _decide(self, inquiry: _Inquiry, told: Diagnosed, summary: Summary) -> Alarm | None:
        """One alarm per incident."""
        reason = inquiry.suspicion.reason
        certain = told.cause in _CERTAIN.get(reason, frozenset())
        if reason is SuspicionReason.DEPARTED:  # nothing is certain about the other ranks yet
            certain = certain and set(told.suspects) <= {o.rank for o in summary.odd}
        late = reason is SuspicionReason.STALL and told.cause != "healthy"
        key = (told.cause, told.suspects, told.group)
        if key in self._told or not (certain or late):
            self._close(inquiry)
            return None
        self._told.add(key)
        told = with_content(_as_stopped(told, summary), summary, self._world_size)
        share_s = 0.0 if certain else stall_limit(None, summary.timeout_s)
        told = self._with_store(told)
        alarm = Alarm(told, reason, self._keep(inquiry, told), time.time(), share_s)
        self._close(inquiry)
        self._notify(alarm)
        return alarm

    def _notify(self, alarm: Alarm) -> None:
        """From a separate process: this one may end because of the alarm, and must not wait for anybody."""
        notice = alarm.told.notice
        if notice is None:
            return
        notice = replace(notice, origin=replace(notice.origin, evidence=alarm.folder or None))
        try:
            notify_alone(notice, NotifySettings(self._settings.notify))
        except OSError as error:
            say(f"forkpoint guard: no service was notified: no process could be started ({error.strerror})")

    def _with_store(self, told: Diagnosed) -> Diagnosed:
        """Written only now: most suspicions turn out to be no incident."""
        if self._settings.store is None or told.incident is None:
            return told
        said = {"cause": told.cause, "action": told.action, "headline": told.headline}
        try:
            keep_incident(self._settings.store, told.incident | said)
        except OSError as error:
            return replace(told, store_problem=f"the incident is not kept: {error.strerror}")
        return told

    def _keep(self, inquiry: _Inquiry, told: Diagnosed) -> str:
        """Copies the evidence, in mode `dump`, and returns the folder. Ranks on other hosts write theirs to that name, too."""
        if self._settings.mode is not Mode.DUMP:
            return ""
        name = time.strftime("%Y%m%d-%H%M%S")
        place = Path(self._settings.folder).absolute() / name
        try:
            shutil.copytree(inquiry.folder, place)
            (place / "verdict.json").write_text(told.document)
        except OSError as error:
            return f"not kept: {place} cannot be written ({error.strerror})"
        self._asked += 1
        self._guard_store.publish("ask", encode(Ask(self._asked, keep=name)))
        return str(place)

    def _close(self, inquiry: _Inquiry) -> None:
        self._inquiry = None
        if inquiry.diagnosis is not None:
            inquiry.diagnosis.end()
        shutil.rmtree(inquiry.folder, ignore_errors=True)
        with suppress(Blind):
            self._guard_store.delete([f"answer/{inquiry.number}/{rank}" for rank in inquiry.answers])


def _as_stopped(told: Diagnosed, summary: Summary) -> Diagnosed:
    """A stopped process is not lost: whoever stopped it can continue it."""
    stopped = {odd.rank for odd in summary.odd if odd.state is RankHealth.STOPPED}
    if told.cause != "rank-lost" or not told.suspects or not set(told.suspects) <= stopped:
        return told
    who = name_ranks(told.suspects)
    headline = f"The process of {who} is stopped, by a signal or a debugger, and the others wait for it."
    summary_text = f"{headline} It is not lost: `kill -CONT PID` on its host, or the debugger's continue, resumes it."
    changed = {"cause": "host-stall", "headline": headline, "summary": summary_text, "action": "investigate"}
    document = json.dumps(json.loads(told.document) | changed, indent=2)
    return _restated(told, document, **changed)


def with_content(told: Diagnosed, summary: Summary, world_size: int) -> Diagnosed:
    """If the engine does not decide: its likeliest hypothesis, and what the guards saw."""
    if told.cause != "inconclusive":
        return told
    places = ", ".join(f"{group.partition('#')[0]} call {seq}" if seq else group for group, seq in summary.waits[:3])
    seen = f"{summary.waiting} of {world_size} ranks wait at {places or 'a call'}, nothing moved for {summary.still_s:.0f} s"
    away = {odd.rank for odd in summary.odd} | set(summary.silent)
    seen += (
        f"; {name_ranks(tuple(sorted(away)))} sent nothing lately"
        if away
        else "; the others run and have not reached it yet"
    )
    readings = json.loads(told.document).get("hypotheses", ())
    guess = (
        f" Possibly {readings[0]['cause']}"
        if readings
        else " Possibly host-stall: a rank that is busy outside torch.distributed"
    )
    of = name_ranks(tuple(readings[0]["suspects"])) if readings and readings[0]["suspects"] else ""
    headline = f"{seen}.{guess}{f' of {of}' if of else ''}."
    return _restated(told, told.document, headline=headline)


def _restated(told: Diagnosed, document: str, **changed: Any) -> Diagnosed:
    """Changes the verdict and its notice: the guards know more than the engine saw."""
    notice = told.notice
    if notice is not None:
        cause, headline = changed.get("cause", told.cause), changed.get("headline", told.headline)
        markdown = f"# forkpoint: {cause}\n\n```text\n{headline}\n```\n"
        notice = replace(notice, **changed, document=document, markdown=markdown, fix=None)
    return replace(told, **changed, document=document, notice=notice)


def _scratch() -> Path:
    """In memory if possible: a full disk must not prevent the verdict."""
    memory = Path("/dev/shm")  # noqa: S108 the folder below it is made for us alone
    return Path(tempfile.mkdtemp(prefix="forkpoint-", dir=memory if os.access(memory, os.W_OK) else None))


# ---------------------------------------------------------------------------------------------------------------------
# Prints an alarm; in mode `raise`, ends the training.

STOP_CODE: Final = 93
"""Tells job managers not to retry: the code is at fault."""
_GRACE_S: Final = 3.0


class RanksParted(RuntimeError):
    """Raised in the training thread of every rank, in mode `raise`. Its text is the verdict."""


def render(alarm: Alarm) -> str:
    told = alarm.told
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(alarm.when))
    lines = [f"forkpoint guard: {when} {told.cause}, confidence {told.confidence:.2f}: {told.headline}"]
    lines += [f"  {told.summary}"] if told.summary != told.headline else []
    lines += [f"  at {site}" for site in told.sites]
    lines += [f"  {line}" for line in told.seen]
    lines += [f"  {told.store_problem}"] if told.store_problem else []
    if alarm.folder:
        lines.append(f"  evidence: {alarm.folder}")
    return "\n".join(lines)


def say(text: str) -> None:
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return  # a full disk or a closed stream must not end a job


def end_training(text: str) -> None:
    """Raises in the main thread, and ends the process if that thread cannot be woken.

    A thread that waits inside C++ raises only when it comes back: NCCL's groups are aborted for that. Gloo's calls cannot
    be, so the process ends instead, with the verdict on stderr; its peers' calls then fail, too.
    """
    raised = threading.Event()

    def be_born(self: RanksParted, *_: object) -> None:
        RuntimeError.__init__(self, text)
        raised.set()

    kind = type("RanksParted", (RanksParted,), {"__init__": be_born, "__module__": RanksParted.__module__})
    main = threading.main_thread().ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main or 0), ctypes.py_object(kind))
    threading.Thread(target=_abort, daemon=True, name="forkpoint-abort").start()
    until = time.monotonic() + _GRACE_S
    while time.monotonic() < until:
        if raised.is_set():
            return
        time.sleep(0.05)
    say(f"{text}\nforkpoint guard: the training thread cannot be woken; this process ends with code {STOP_CODE}")
    os._exit(STOP_CODE)


def _abort() -> None:
    try:
        distributed_c10d._abort_process_group()  # noqa: SLF001 the only way
    except Exception as error:  # noqa: BLE001 a backend without it, or one that is already gone: the process ends instead
        say(f"forkpoint guard: the groups could not be aborted ({type(error).__name__})")
