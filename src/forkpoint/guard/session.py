"""The guard of one process group, from its start to its end: what the guard's thread does at every look."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch.distributed as dist

from forkpoint.guard.alarm import end_training, render, say
from forkpoint.guard.answer import Ask, decode_ask
from forkpoint.guard.beat import Beat, RankHealth
from forkpoint.guard.leader import Leader
from forkpoint.guard.meeting import Blind, Meeting, meet
from forkpoint.guard.neighbour import Identity, own_identity
from forkpoint.guard.overseer import Alarm, Overseer
from forkpoint.guard.rank_side import RankSide, leave_files
from forkpoint.guard.settings import Mode, Settings
from forkpoint.guard.wire import decode, encode

_AGAIN_S: Final = 10.0
"""Between attempts to reach a store that did not answer."""
_MOVING_S: Final = 1.5
"""Between two exchanges while this rank moves on and has nothing new to tell; one that stands still tells it at every
look, and who gathers what others tell listens at every look."""
_PATIENCE_S: Final = 30.0
"""For rank 0's guard to serve the store: a rank may start its training that much later."""


class Session:
    def __init__(self, settings: Settings, number: int) -> None:
        self._settings = settings
        self._number = number
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.every_s = settings.interval_s(self.world_size)
        self.side = RankSide(self.rank, self.world_size)
        self.blind = "not connected yet"
        """Why nothing can be heard of the others; "" = it can."""
        self.alarms: list[Alarm] = []
        self._meeting: Meeting | None = None
        self._leader: Leader | None = None
        self._overseer: Overseer | None = None
        self._next_try = 0.0
        self._exchanged = 0.0
        self._answered = 0
        self._told_reads = -1
        self._own = own_identity()
        self._neighbour: Identity | None = None
        self._ended = False

    def look(self) -> None:
        """Never raises for what others do or fail to do."""
        moves = self.side.poll() < self.every_s
        now = time.monotonic()
        may_wait = moves and self.side.reads == self._told_reads and not (self._leader and self._leader.levels)
        if now < (self._next_try if self._meeting is None else self._exchanged + _MOVING_S * may_wait):
            return
        self._exchanged = now
        try:
            self._exchange(self._meeting or self._connect(), self.side.beat())
        except Blind as error:
            self._go_blind(str(error))

    def end(self) -> None:
        """Tells the others that this rank leaves in order, or with which exception."""
        try:
            if self._meeting is not None:
                self._say_last_words(self._meeting)
        except Blind:
            return
        finally:
            if self._overseer is not None:
                self._overseer.end()

    def _say_last_words(self, meeting: Meeting) -> None:
        words = self._with_neighbour(meeting, self.side.last_words())
        self._tell(meeting, words)
        meeting.hear([f"beat/{self.rank}"])  # until it has arrived: a store takes words without an answer
        if self._overseer is None or self._leader is None or self.alarms:
            return
        if words.state is RankHealth.RAISED:
            self._give(self._overseer.conclude(self.side.answer(), self._leader.gather), meeting)
        else:
            self._give(self._overseer.finish(self._leader.gather), meeting)

    def _connect(self) -> Meeting:
        meeting = meet(self.rank, self._number, time.monotonic() + _PATIENCE_S)
        meeting.tell(f"who/{self.rank}", encode(self._own))
        self._meeting = meeting
        self._told_reads = -1
        self._leader = Leader(self.rank, self.world_size, meeting, self.every_s)
        self._overseer = Overseer(self.world_size, meeting, self._settings) if self.rank == 0 else None
        if self.blind != "not connected yet":
            say(f"forkpoint guard: rank {self.rank} sees the others again")
        self.blind = ""
        return meeting

    def _go_blind(self, why: str) -> None:
        self._meeting = None
        self._next_try = time.monotonic() + _AGAIN_S
        if self.blind != why:
            say(f"forkpoint guard: rank {self.rank} is blind: {why}; training goes on unwatched")
        self.blind = why

    def _exchange(self, meeting: Meeting, beat: Beat) -> None:
        self._tell(meeting, self._with_neighbour(meeting, beat))
        ask, verdict = meeting.hear(["ask", "verdict"])
        wanted = decode_ask(ask)
        if wanted.number > self._answered:
            self._answered = wanted.number
            if not wanted.ranks or self.rank in wanted.ranks:
                self._answer(meeting, wanted)
        if self._leader is not None and self._leader.levels:
            summary = self._leader.gather()
            if self._overseer is not None:
                self._give(self._overseer.attend(summary), meeting)
        if verdict and self._settings.mode is Mode.RAISE and not self._ended:
            self._ended = True
            end_training(verdict.decode("utf-8", "replace"))

    def _tell(self, meeting: Meeting, beat: Beat) -> None:
        if beat.reads != self._told_reads:
            self._told_reads = beat.reads
            meeting.tell(f"calls/{self.rank}", encode(self.side.calls()))
        meeting.tell(f"beat/{self.rank}", encode(beat))

    def _answer(self, meeting: Meeting, ask: Ask) -> None:
        answer = self.side.answer()
        if not ask.keep:
            meeting.tell(f"answer/{ask.number}/{self.rank}", encode(answer))
            return
        folder = Path(self._settings.folder) / ask.keep
        try:
            leave_files(answer, folder)
        except OSError as error:
            say(f"forkpoint guard: rank {self.rank} cannot write to {folder} ({error.strerror})")

    def _with_neighbour(self, meeting: Meeting, beat: Beat) -> Beat:
        """Of the next rank, where it is on the same host."""
        neighbour = (self.rank + 1) % self.world_size
        if self._neighbour is None:
            (told,) = meeting.hear([f"who/{neighbour}"])
            self._neighbour = decode(told, Identity)
        known = self._neighbour
        if known is None or not known.host or known.host != self._own.host:
            return beat
        return replace(beat, neighbour=neighbour, neighbour_state=known.look_at())

    def _give(self, alarm: Alarm | str | None, meeting: Meeting) -> None:
        if isinstance(alarm, str):
            say(f"forkpoint guard: {alarm}")
        elif alarm is not None:
            self.alarms.append(alarm)
            text = render(alarm)
            say(text)
            meeting.tell("verdict", text.encode("utf-8", "backslashreplace"))
