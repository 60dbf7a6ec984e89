"""The guard of one process group, the thread it runs in, and the functions that start, stop and ask it.

Whatever fails in it, training goes on.
"""

import atexit
import os
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

import torch.distributed as dist
from torch.distributed import distributed_c10d

from forkpoint.guard.messages import (
    Ask,
    Beat,
    Blind,
    GuardStore,
    Identity,
    RankHealth,
    connect_guards,
    decode,
    decode_ask,
    encode,
    own_identity,
)
from forkpoint.guard.overseer import Alarm, Overseer, end_training, render, say
from forkpoint.guard.rank_side import RankSide, leave_files
from forkpoint.guard.recorder import is_running
from forkpoint.guard.settings import Mode, Settings, read_settings
from forkpoint.guard.summary import QUIET_S, Leader, Summary
from forkpoint.live.rank_socket import AnswerThread

_AGAIN_S: Final = 10.0
"""Between attempts to reach a store that did not answer."""
_MOVING_S: Final = 1.5
"""Between two exchanges while this rank moves and has nothing new to send. A rank that stands still sends at every look, and
a leader reads at every look."""
_ALONE_S: Final = 20.0
"""Without a store and without movement: long enough for a store to come back, and short of any group's timeout."""
_PATIENCE_S: Final = 30.0
"""For rank 0's guard to serve the store: a rank may start its training that much later."""

_HOW_TO_KEEP: Final = (
    "forkpoint guard: no evidence was kept. While it hangs: forkpoint attach --keep DIR. From the next run on: "
    "FORKPOINT=dump writes dumps, stacks and the verdict to FORKPOINT_DIR (docs/guard.md)"
)


class Session:
    """The guard of one process group: what its thread does at every look."""

    def __init__(self, settings: Settings, number: int) -> None:
        self._settings = settings
        self._number = number
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.every_s = settings.interval_s(self.world_size)
        self.side = RankSide(self.rank, self.world_size)
        self.blind = "not connected yet"
        """Why the other ranks cannot be read; "" = they can."""
        self.alarms: list[Alarm] = []
        self._guard_store: GuardStore | None = None
        self._leader: Leader | None = None
        self._overseer: Overseer | None = None
        self._next_try = 0.0
        self._exchanged = 0.0
        self._answered = 0
        self._told_reads = -1
        self._own = own_identity()
        self._neighbour: Identity | None = None
        self._ended = False
        self._pending: Alarm | None = None
        """An alarm that ends the training if nothing moves for long enough, in mode `raise`."""
        self._said_stopped: set[int] = set()
        self._folder = Path(settings.folder) / time.strftime("%Y%m%d-%H%M%S")
        self._left_files = False
        self._lost_at: float | None = None
        """When the store stopped answering."""

    def look(self) -> None:
        """Never raises because of what others do or fail to do."""
        still_s = self.side.poll()
        moves = still_s < self.every_s
        now = time.monotonic()
        if self._lost_at is not None and min(still_s, now - self._lost_at) >= _ALONE_S and self.side.beat().is_waiting:
            self._write_own_evidence("the guards' store is gone, and this rank waits in a call that is not done")
        may_wait = moves and self.side.reads == self._told_reads and not (self._leader and self._leader.levels)
        if now < (self._next_try if self._guard_store is None else self._exchanged + _MOVING_S * may_wait):
            return
        self._exchanged = now
        try:
            self._exchange(self._guard_store or self._connect(), self.side.beat())
        except Blind as error:
            self._go_blind(str(error))

    def end(self) -> None:
        """Tells the others that this rank ends normally, or with which exception."""
        words = self.side.last_beat()
        heard = False
        try:
            with suppress(Blind):
                if self._guard_store is not None:
                    self._send_last_beat(self._guard_store, words)
                    heard = True
            if not heard and words.state is RankHealth.RAISED:
                self._write_own_evidence("this rank ends with an exception, and the guards' store is gone")
        finally:
            if self._overseer is not None:
                self._overseer.end()

    def _send_last_beat(self, guard_store: GuardStore, words: Beat) -> None:
        if words.state is RankHealth.RAISED and self._settings.mode is not Mode.OBSERVE:
            # Where gloo aborts, all ranks end at once: their evidence is lost unless it is written now.
            self._write_own_evidence("this rank ends with an exception")
        self._tell(guard_store, self._with_neighbour(guard_store, words))
        guard_store.read([f"beat/{self.rank}"])  # wait until it has arrived: the store does not acknowledge `set`
        if self._overseer is None or self._leader is None or self.alarms:
            return
        if words.state is RankHealth.RAISED:
            self._report(self._overseer.conclude(self.side.answer(), self._leader.gather), guard_store)
        else:
            self._report(self._overseer.finish(self._leader.gather), guard_store)

    def _connect(self) -> GuardStore:
        patience_s = _PATIENCE_S if self._lost_at is None else self.every_s
        guard_store = connect_guards(
            self.rank, self._number, time.monotonic() + patience_s, again=self._lost_at is not None
        )
        guard_store.publish(f"who/{self.rank}", encode(self._own))
        self._guard_store = guard_store
        self._told_reads = -1
        self._leader = Leader(self.rank, self.world_size, guard_store, self.every_s)
        self._overseer = Overseer(self.world_size, guard_store, self._settings) if self.rank == 0 else None
        if self.blind != "not connected yet":
            say(f"forkpoint guard: rank {self.rank} can reach the others again")
        self.blind = ""
        self._lost_at = None
        return guard_store

    def _go_blind(self, why: str) -> None:
        if self._guard_store is not None and self._lost_at is None:
            self._lost_at = time.monotonic()
        self._guard_store = None
        self._next_try = time.monotonic() + _AGAIN_S
        if self.blind != why:
            say(f"forkpoint guard: rank {self.rank} is blind: {why}; training continues unwatched")
        self.blind = why

    def _exchange(self, guard_store: GuardStore, beat: Beat) -> None:
        self._tell(guard_store, self._with_neighbour(guard_store, beat))
        ask, verdict = guard_store.read(["ask", "verdict"])
        wanted = decode_ask(ask)
        if wanted.number != self._answered:  # not only a higher one: a forged number would silence this rank
            self._answered = wanted.number
            if not wanted.ranks or self.rank in wanted.ranks:
                self._answer(guard_store, wanted)
        if self._leader is not None and self._leader.levels:
            summary = self._leader.gather()
            if self._overseer is not None:
                self._say_stopped(summary)
                self._report(self._overseer.attend(summary), guard_store)
                self._end_if_still(summary, guard_store)
        if verdict and self._settings.mode is Mode.RAISE and not self._ended:
            self._ended = True
            end_training(verdict.decode("utf-8", "replace"))

    def _tell(self, guard_store: GuardStore, beat: Beat) -> None:
        if beat.reads != self._told_reads:
            self._told_reads = beat.reads
            guard_store.publish(f"calls/{self.rank}", encode(self.side.calls()))
        guard_store.publish(f"beat/{self.rank}", encode(beat))

    def _answer(self, guard_store: GuardStore, ask: Ask) -> None:
        answer = self.side.answer()
        if not ask.keep:
            guard_store.publish(f"answer/{ask.number}/{self.rank}", encode(answer))
            return
        folder = Path(self._settings.folder) / ask.keep
        try:
            leave_files(answer, folder)
        except OSError as error:
            say(f"forkpoint guard: rank {self.rank} cannot write to {folder} ({error.strerror})")

    def _with_neighbour(self, guard_store: GuardStore, beat: Beat) -> Beat:
        """Adds the state of the next rank's process if it is on the same host."""
        neighbour = (self.rank + 1) % self.world_size
        if self._neighbour is None:
            (told,) = guard_store.read([f"who/{neighbour}"])
            self._neighbour = decode(told, Identity)
        known = self._neighbour
        if known is None or not known.host or known.host != self._own.host:
            return beat
        return replace(beat, neighbour=neighbour, neighbour_state=known.look_at())

    def _report(self, alarm: Alarm | str | None, guard_store: GuardStore) -> None:
        if isinstance(alarm, str):
            say(f"forkpoint guard: {alarm}")
        elif alarm is not None:
            self.alarms.append(alarm)
            text = render(alarm)
            say(text)
            if self._settings.mode is Mode.OBSERVE and len(self.alarms) == 1:
                say(_HOW_TO_KEEP)
            if alarm.ends_after_s:
                self._pending = alarm
            else:
                guard_store.publish("verdict", text.encode("utf-8", "backslashreplace"))

    def _end_if_still(self, summary: Summary, guard_store: GuardStore) -> None:
        """An alarm that may resolve itself ends the training only after `ends_after_s`, and not if anything moved."""
        alarm = self._pending
        if alarm is None:
            return
        if summary.still_s < QUIET_S:
            self._pending = None
            say("forkpoint guard: the job moves again; it is not ended")
        elif summary.still_s >= alarm.ends_after_s:
            self._pending = None
            guard_store.publish("verdict", render(alarm).encode("utf-8", "backslashreplace"))

    def _say_stopped(self, summary: Summary) -> None:
        """Once per stop: it may be intended."""
        stopped = {odd.rank for odd in summary.odd if odd.state is RankHealth.STOPPED}
        for rank in sorted(stopped - self._said_stopped):
            say(
                f"forkpoint guard: the process of rank {rank} is stopped, by a signal or a debugger; the others will wait for it"
            )
        self._said_stopped = stopped

    def _write_own_evidence(self, why: str) -> None:
        """Writes this rank's evidence to a folder on its own host: the other ranks cannot be reached."""
        if self._left_files:
            return
        self._left_files = True
        try:
            leave_files(self.side.answer(), self._folder)
        except OSError as error:
            say(f"forkpoint guard: rank {self.rank} cannot write to {self._folder} ({error.strerror})")
        else:
            say(
                f"forkpoint guard: {why}; the evidence of rank {self.rank} is in {self._folder}: forkpoint diagnose {self._folder}"
            )


# ---------------------------------------------------------------------------------------------------------------------
# The guard's thread: waits for a process group, watches it, and never disturbs the training.

_LEAVE_S: Final = 12.0
"""How long the thread gets at exit. Its last message takes milliseconds, or 3 s if the store is gone; if rank 0 ends with
an exception, the verdict takes a few seconds."""


_sessions = count(1)
"""Numbers all sessions of this process: no guard may read messages meant for an earlier one."""


class GuardThread:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.session: Session | None = None
        self.died = ""
        """Why the thread ended early."""
        self._stop = threading.Event()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, daemon=True, name="forkpoint-guard")

    def start(self) -> None:
        self._thread.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Before the interpreter exits: a thread inside the store's C++ code at that moment would crash the process."""
        self._stop.set()
        if os.getpid() == self._pid and self._thread.is_alive():
            self._thread.join(_LEAVE_S)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._watch_group()
        except Exception as error:  # noqa: BLE001 whatever it is, training goes on
            self.died = f"{type(error).__name__}: {error}"
            where = traceback.extract_tb(error.__traceback__)[-1]
            say(f"forkpoint guard: stopped by its own error ({self.died}, {where.name}); training continues unwatched")

    def _watch_group(self) -> None:
        """Watches one process group from its creation to its end."""
        while not is_running():
            if self._stop.wait(self.settings.every_s):
                return
        group = distributed_c10d.group.WORLD
        session = Session(self.settings, next(_sessions))
        if session.world_size > 1:
            self.session = session
        answers = _answer_others(session)
        while not self._stop.is_set() and distributed_c10d.group.WORLD is group:
            if session.world_size > 1:
                session.look()
            # At the same wall-clock times on all ranks: so they delay a step once, not once per rank.
            self._stop.wait(session.every_s - time.time() % session.every_s)
        if answers is not None:
            answers.close()
        if session.world_size > 1:
            session.end()


def _answer_others(session: Session) -> AnswerThread | None:
    """For `forkpoint attach`, which asks while a job hangs. None if no socket can be opened: training goes on."""
    try:
        return AnswerThread(lambda: encode(session.side.answer()))
    except OSError as error:
        say(f"forkpoint guard: rank {session.rank} cannot answer forkpoint attach ({error.strerror})")
        return None


_running: list[GuardThread] = []


def start(settings: Settings | None = None) -> None:
    """Starts the guard of this process, before or after `init_process_group`. A second start changes nothing."""
    if _running:
        return
    thread = GuardThread(settings or read_settings() or Settings())
    _running.append(thread)
    thread.start()


def stop() -> None:
    while _running:
        _running.pop().stop()


def step(number: int) -> None:
    """Call it on every rank at the end of training step `number`: the guard compares how many calls each group has had.

    This finds a skipped call among identical ones, which no recorder can show before the job ends.
    """
    thread = running_thread()
    if thread is not None and thread.session is not None:
        thread.session.side.end_step(number)


def running_thread() -> GuardThread | None:
    return _running[0] if _running else None


# ---------------------------------------------------------------------------------------------------------------------
# What the guard of this process can see, for the training program.


@dataclass(frozen=True, slots=True)
class Status:
    running: bool
    blind: str
    """Why it cannot reach the other ranks; "" = it can."""
    alarms: tuple[Alarm, ...]
    """Only on rank 0."""


def status() -> Status:
    thread = running_thread()
    if thread is None:
        return Status(running=False, blind="not started", alarms=())
    session = thread.session
    blind = thread.died or (session.blind if session else "no process group yet")
    return Status(running=not thread.died, blind=blind, alarms=tuple(session.alarms) if session else ())
