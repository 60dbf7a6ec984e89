"""Ranks that left before anyone complained, and how: according to their own log, or to whatever started or killed them.

An abort after a timeout, a connection closed by a peer, the launcher's SIGTERM to the siblings of a failed process:
these are consequences of another rank's end and accuse nobody. What a rank says first counts, not what it says last.
"""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from forkpoint.judge.facts.blame import (
    CLOSED,
    SAID_OF_PEERS,
    Exit,
    blames_peers,
    cuda_errors,
    cut_off,
    find_closings,
    find_exits,
    find_finished,
    is_victim_text,
    whole_text,
)
from forkpoint.judge.facts.cite import cite_event, events_of, has_log, live_stack
from forkpoint.judge.facts.clocks import find_clocks
from forkpoint.judge.facts.machines import GpuFault, find_gpu_faults, find_memory_kills
from forkpoint.judge.facts.older_dumps import have_gone_on
from forkpoint.judge.facts.rounds import is_in_step
from forkpoint.judge.facts.stacks import is_communicating
from forkpoint.model.capture import Remark
from forkpoint.model.frames import find_parting, in_side_thread, same_function, short_name, user_place
from forkpoint.model.headline import quote_error
from forkpoint.model.incident import Divergence, Incident, fact
from forkpoint.model.log import LogEvent, LogKind
from forkpoint.model.op import Stack
from forkpoint.model.verdict import Evidence

_UNJOINED = "terminate called without an active exception"
_UNREDUCED = "Expected to have finished reduction"
"""DDP raises this if the previous step did not use all parameters, which means that it took another path."""
_TIMED_OUT = re.compile(r"[Tt]imed out|[Tt]imeout")
_OWN_ERRORS = (LogKind.EXCEPTION, LogKind.CUDA_ERROR, LogKind.LOADER_DIED, LogKind.OUT_OF_MEMORY)
_LIVED_ON = frozenset({LogKind.WATCHDOG_TIMEOUT, LogKind.DUMPED, LogKind.DUMP_SIGNAL})
_ERRORS = re.compile(r"stderr|\.err\b", re.IGNORECASE)
"""Names of logs that contain only standard error."""
_OF_LAUNCHERS = frozenset({LogKind.AGENT_FAILURE, LogKind.AGENT_STOP, LogKind.EXITED, LogKind.CANCELLED})
_CUT_TEXT = 40


class Departure(StrEnum):
    DIED = "died"
    """An exception in its own code ended it while it was still on the same path as the others."""
    RAISED = "raised"
    """Its own code raised after it had left the others' path: it had handled another exception, had logged that it
    skips something, or had skipped a part of a model.
    """
    KILLED = "killed"
    """A signal from outside, a crash in native code, or running out of memory."""
    LEFT = "left"
    """Its program ended normally while the others continued."""
    WENT_SILENT = "went silent"
    """A process went away, and this is the only rank whose log does not mention it."""
    GPU_FAILED = "gpu failed"
    """The kernel reports a fault of its GPU, and it left no dump."""


class Departed(Struct, frozen=True):
    rank: int
    how: Departure
    event: LogEvent | None
    """Its own log line, or its launcher's."""
    fault: GpuFault | None = None
    kill: Remark | None = None
    """The kernel's message that it was killed for memory."""
    exit: Exit | None = None
    """Its exit, according to its launcher."""
    silent: bool = False
    """It would have logged something if it had been alive."""
    asked: str | None = None
    """The empty file in which it would have answered."""

    @property
    def told(self) -> str:
        """What it did, as a phrase that follows its name."""
        if self.how not in (Departure.DIED, Departure.RAISED) or self.event is None:
            return "ended its program"
        place = user_place(self.event.stack)
        return f"raised {quote_error(self.event.text)}{f' at {place}' if place else ''} and left"


@fact
def find_departed(incident: Incident) -> tuple[Departed, ...]:
    """Ranks that left first. Ranks that complained about others before, or that their launcher stopped, are not among
    them.
    """
    sources = _Sources(incident)
    told = [d for rank in incident.timeline.world if (d := sources.departed(rank))]
    return tuple(told) if told or sources.refused else sources.went_silent()


def missing_from(divergence: Divergence | None, incident: Incident) -> tuple[int, ...]:
    """Ranks whose absence could explain the slot: unknown there, or without any dump. An empty dump is no sign of life
    of a rank that its launcher saw end first: a restart can make all ranks dump at once.
    """
    unknown, traces = divergence.unknown if divergence else incident.timeline.world, incident.timeline.traces
    if have_gone_on(incident):
        return unknown  # dumps of a job that continued are no sign of life at its end
    ended = {rank for rank, end in find_exits(incident).items() if end.is_first}
    return tuple(r for r in unknown if r not in traces or (r in ended and not traces[r].entries))


def _is_of_errors(file: str) -> bool:
    return bool(_ERRORS.search(short_name(file)))


class _Sources:
    """Everything that shows how ranks ended, looked up once."""

    def __init__(self, incident: Incident) -> None:
        self._incident = incident
        self._faults, self._kills = find_gpu_faults(incident), find_memory_kills(incident)
        self._exits, self._finished = find_exits(incident), find_finished(incident)
        self._logs: dict[int | None, list[str]] = defaultdict(list)
        for file, owner in incident.capture.logs:
            self._logs[owner].append(file)
        self.refused = frozenset(e.rank for e in incident.capture.events if e.kind is LogKind.SIZES_DIFFER)
        """Ranks whose library refused what a peer sent: one of the two is wrong, and it is not known which."""

    def _said(self, rank: int) -> list[LogEvent]:
        """Its own log line. Lines after its launcher reported its end, in the same log, belong to the process that
        replaced it.
        """
        end = self._exits.get(rank)
        said = self._incident.said.get(rank, ())
        return [e for e in said if end is None or e.file != end.event.file or e.line <= end.event.line]

    def departed(self, rank: int) -> Departed | None:
        own = self._by_words(rank)
        fault = self._faults.get(rank)
        return self._by_gpu(rank, own, fault) if fault else own

    def _by_gpu(self, rank: int, own: Departed | None, fault: GpuFault) -> Departed | None:
        """A GPU fault explains an end that the rank itself or its launcher reports. An exception in the rank's own code
        keeps its own cause, and so does a kill that its own log reports.
        """
        failed = cuda_errors(rank, self._incident)
        if failed:
            return Departed(rank, Departure.GPU_FAILED, failed[0], fault)
        killed = fault.timely and own is not None and own.exit is not None and own.event is own.exit.event
        if own is not None and own.event is not None and (killed or own.event.kind is LogKind.CRASHED):
            return replace(own, how=Departure.GPU_FAILED, fault=fault)
        if own is None and fault.timely and has_log(rank, self._incident) and not self._is_alive(rank):
            silent = self._is_silent(rank) and self._silence_tells(rank)
            return Departed(rank, Departure.GPU_FAILED, None, fault, silent=silent)
        return own

    def _by_words(self, rank: int) -> Departed | None:
        end = self._exits.get(rank)
        if end is not None and end.is_stopped:
            return None
        first = self._first_word(rank)
        if first is not None:
            raised = (
                first.exception and first.kind is not LogKind.LOADER_DIED
            )  # its worker was killed; its code is not at fault
            how = self._how_raised(first, rank) if raised else Departure.KILLED
            return Departed(rank, how, first, kill=self._kills.get(rank), exit=end)
        if rank in self.refused or self._blames_peers(rank):
            return None
        return self._by_others(rank, end) or self._left(rank)

    def _by_others(self, rank: int, end: Exit | None) -> Departed | None:
        """According to the kernel or the launcher."""
        if rank in self._kills:
            return Departed(rank, Departure.KILLED, None, kill=self._kills[rank])
        if end is None or not end.is_first:
            return None
        if end.is_from_outside and not self._was_late(end.event, rank):
            return Departed(rank, Departure.KILLED, end.event, exit=end)
        raised = end.said and not end.signal and not is_victim_text(end.said)
        return Departed(rank, Departure.DIED, replace(end.event, text=end.said), exit=end) if raised else None

    def _how_raised(self, event: LogEvent, rank: int) -> Departure:
        said = [e for e in self._said(rank) if e.file == event.file]
        told = any(e.kind is LogKind.NOTICE and e.line < event.line for e in said)
        later = [e for e in said if e.line > event.line]
        # The same text again is the same exception, logged by the program and then by Python.
        handled = any(
            e.exception and e.text != event.text and not e.detail("chain") and not blames_peers(e) for e in later
        )
        lived_on = rank in self._incident.timeline.traces or live_stack(rank, self._incident) is not None
        return Departure.RAISED if told or handled or lived_on or _UNREDUCED in event.text else Departure.DIED

    def _left(self, rank: int) -> Departed | None:
        left = events_of(rank, self._incident, LogKind.LEFT)
        if self._is_alive(rank) or not (left or rank in self._finished or self._says_done(rank)):
            return None
        return Departed(rank, Departure.LEFT, left[0] if left else None)

    def _first_word(self, rank: int) -> LogEvent | None:
        """The first thing that its log reports, if that is an end of its own making or one from outside."""
        files: dict[str, list[LogEvent]] = {}
        for event in self._said(rank):
            files.setdefault(event.file, []).append(event)
        found = [word for said in files.values() if (word := _first_own(said)) and not self._is_cut(word)]
        crashed = [word for word in found if word.kind is LogKind.CRASHED]
        if crashed and (rank in self.refused or self._blames_peers(rank)):
            found = [word for word in found if word not in crashed]
        return next((word for word in found if not self._was_late(word, rank)), None)

    def _is_cut(self, event: LogEvent) -> bool:
        """The log was truncated within this text: what is missing may blame a peer."""
        capture = self._incident.capture
        end = capture.log_ends.get(event.file)
        return event.file in capture.cut_logs and end is not None and end.lines[-1].endswith(event.text[-_CUT_TEXT:])

    def _blames_peers(self, rank: int) -> bool:
        return any(blames_peers(event) for event in self._said(rank))

    def _was_late(self, event: LogEvent, rank: int) -> bool:
        """Others had given up before, according to a clock that dates both."""
        clocks = find_clocks(self._incident) if event.time else None
        ended = clocks.of_event(event) if clocks else None
        if clocks is None or ended is None:
            return False
        first = self._gave_up_first.get(ended.clock, {})
        return any(second < ended.second for other, second in first.items() if other != rank)

    @cached_property
    def _gave_up_first(self) -> dict[str, dict[int | None, int]]:
        """When the first two ranks gave up, by clock. At least one of them is not the rank in question."""
        clocks, seconds = find_clocks(self._incident), defaultdict[str, dict[int | None, int]](dict)
        for event in self._incident.capture.events:
            instant = clocks.of_event(event) if event.kind is LogKind.WATCHDOG_TIMEOUT else None
            if instant is not None:
                by = seconds[instant.clock]
                by[event.rank] = min(by.get(event.rank, instant.second), instant.second)
        return {clock: dict(sorted(by.items(), key=lambda one: one[1])[:2]) for clock, by in seconds.items()}

    def went_silent(self) -> tuple[Departed, ...]:
        """The only silent ranks, if others report that a process went away, or if a living one would have logged
        something.
        """
        silent = [rank for rank in self._incident.timeline.world if not (rank in self._exits or self._is_alive(rank))]
        # Processes that the launcher saw fail first and that have no log may have been the first of all; the launcher
        # then stopped the others.
        unheard = any(end.is_first and not self._is_alive(rank) for rank, end in self._exits.items())
        tells = bool(silent) and not unheard and self._all_are_known(silent)
        if tells and all(self._is_silent(rank) and self._silence_tells(rank) for rank in silent):
            return tuple(Departed(rank, Departure.WENT_SILENT, None, silent=True) for rank in silent)
        asked = {r: file for r in silent if self._is_silent(r) and (file := _unanswered(r, self._incident))}
        return tuple(Departed(r, Departure.WENT_SILENT, None, silent=True, asked=file) for r, file in asked.items())

    def _all_are_known(self, silent: list[int]) -> bool:
        """If the job's size is not stated, a rank may have left no file at all. Then the only silent rank would have
        lost its connections like all others, unless a launcher stopped it while it was at work. So there must be no
        sign of a launcher, and the rank must have been in step with the others.
        """
        unseen, others = self._incident.timeline.unseen, set(self._incident.timeline.world) - set(silent)
        if unseen == 0:
            return True
        alone = (
            unseen == 1 and len(silent) == 1 and len(others) > 2 and others <= cut_off(self._incident) | self._cut_short
        )
        return alone and not self._has_launcher and is_in_step(silent[0], self._incident)

    @cached_property
    def _has_launcher(self) -> bool:
        """Lines of a launcher, or one folder per attempt, as torchrun creates them."""
        files = [file for file, _ in (*self._incident.capture.logs, *self._incident.capture.empty_logs)]
        return bool(self._exits) or bool(self._kinds & _OF_LAUNCHERS) or any("attempt_" in file for file in files)

    @cached_property
    def _cut_short(self) -> set[int]:
        """Ranks whose log ends within a traceback, at the place of a rank that lost a connection."""
        places = {user_place(e.stack) for e in find_closings(self._incident)} - {None}
        return {e.rank for e in self._cut_tracebacks if e.rank is not None and user_place(e.stack) in places}

    @cached_property
    def _cut_tracebacks(self) -> list[LogEvent]:
        return [e for e in self._incident.capture.events if e.kind is LogKind.EXCEPTION and e.exception is None]

    def _is_silent(self, rank: int) -> bool:
        """Its log is complete and does not say that the program finished."""
        capture = self._incident.capture
        own = self._logs[rank]
        whole = bool(own) and not any(file in capture.cut_logs for file in own) and self._incident.timeline.unseen <= 1
        return whole and self._has_errors_of(own) and not self._says_done(rank) and rank not in self._finished

    def _has_errors_of(self, own: list[str]) -> bool:
        """If other ranks failed in a log of standard error alone, this rank's own such log must be given too."""
        return not self._fails_in_errors or any(map(_is_of_errors, own))

    @cached_property
    def _fails_in_errors(self) -> bool:
        return any(map(_is_of_errors, {event.file for event in self._incident.capture.events if event.is_failure}))

    def _says_done(self, rank: int) -> bool:
        ends = self._incident.capture.log_ends
        return any(ends[file].done for file in self._logs[rank] if file in ends)

    def _silence_tells(self, rank: int) -> bool:
        """A process went away: others lost their connection to it, and none ran into a timeout. Or NCCL's monitor would
        have made it log something even while stuck, and a normal end would have been logged (at INFO level).
        """
        if self._lost_connections:
            # A truncated traceback in another log may hide what ended a rank first.
            return all(e.rank in self._cut_short for e in self._cut_tracebacks)
        kinds = self._kinds
        tells_all = bool(events_of(rank, self._incident, LogKind.SETTINGS))
        leaves = bool(events_of(rank, self._incident, LogKind.LEAVING))
        gave_up = kinds & {LogKind.WATCHDOG_TIMEOUT, LogKind.ASYNC_ERROR}
        return LogKind.DUMPED in kinds and bool(gave_up) and tells_all and not leaves

    @cached_property
    def _lost_connections(self) -> bool:
        said = [whole_text(e) for e in self._incident.capture.events if e.kind in SAID_OF_PEERS]
        return any(CLOSED.search(text) for text in said) and not any(_TIMED_OUT.search(text) for text in said)

    @cached_property
    def _kinds(self) -> frozenset[LogKind]:
        return frozenset(event.kind for event in self._incident.capture.events)

    def _is_alive(self, rank: int) -> bool:
        """It wrote a dump or a stack, or its log mentions the failure."""
        spoke = any(e.is_failure or e.kind is LogKind.DUMPED for e in self._said(rank))
        return spoke or rank in self._incident.timeline.traces or live_stack(rank, self._incident) is not None


def _first_own(said: Iterable[LogEvent]) -> LogEvent | None:
    """The first line of one log that reports an end of the rank's own, or from outside, before any line that blames
    peers.

    An exception, or running out of memory, after which the rank lived on was handled. C++ threads that nobody joined
    may crash a process that is already exiting; any other crash is an end of its own, whatever was raised and caught
    before it.
    """
    events = list(said)
    raised: LogEvent | None = None
    for event in events:
        if blames_peers(event) or event.kind is LogKind.SIZES_DIFFER:
            break
        if event.kind is LogKind.KILLED:
            return event
        if event.kind is LogKind.CRASHED and not (raised and _UNJOINED in event.text):
            return event
        if raised is None and event.kind is LogKind.OUT_OF_MEMORY and not event.exception:
            raised = event
        if raised is None and event.exception and not (is_victim_text(event.text) or in_side_thread(event.stack)):
            raised = event if event.kind in _OWN_ERRORS else None
    lived_on = raised is not None and any(e.line > raised.line and e.kind in _LIVED_ON for e in events)
    return None if lived_on else raised


def _unanswered(rank: int, incident: Incident) -> str | None:
    """It did not answer the request for its stack, while all who wait in the slot did, from inside that wait.

    The handler runs in C and needs no GIL: a process that is stuck in its own code answers. One that ended normally
    does not answer either, but then the others would not wait in a call that it may belong to.
    """
    divergence = incident.divergence
    file = next((file for file, r in incident.capture.unanswered if r == rank), None)
    if divergence is None or file is None:
        return None
    answers = {answer.rank: answer.stack for answer in incident.capture.stacks}
    asked_then = all(_stood_waiting(r, answers.get(r, ()), incident) for r in divergence.sides[0])
    return file if asked_then else None


def _stood_waiting(rank: int, answer: Stack, incident: Incident) -> bool:
    """Its stack was taken while it waited: it is in a communication call, or still in the function that made the call
    (a CUDA call returns before it has finished).
    """
    stands = incident.timeline.positions.get(rank, ())
    if not answer or not stands:
        return False
    parting = find_parting(answer, stands[0].op.stack)
    # All code of a program runs below the body of its script.
    inside = parting is not None and same_function(*parting[1:]) and parting[1].name != "<module>"
    return is_communicating(answer) or inside


def cite_end(departed: Departed, incident: Incident) -> Iterator[Evidence]:
    """Its own log line; else the end of its log; else the launcher's, which reports every process except those that exited
    normally.
    """
    ends = incident.capture.log_ends
    own = next((file for file, rank in incident.capture.logs if rank == departed.rank and file in ends), None)
    tables = [e for e in incident.capture.events if e.kind is LogKind.AGENT_FAILURE]
    if departed.event:
        yield cite_event(departed.event)
    elif own and ends[own].lines:
        yield Evidence(own, departed.rank, "end", ends[own].lines[-1])
    elif tables:
        yield dataclasses.replace(cite_event(tables[0]), says="tells of other ranks that failed, and not of this one")
