"""One rank is late, early, or told to stop."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Disturbance, targets_of

_SLOW_S = 3.0


class SlowRank(Disturbance):
    """One rank is slow.

    What it does
        After the chosen step, or before it puts a message into the job's store, the chosen rank sleeps for three seconds.

    Where it comes from
        A hot GPU, a slow disk, a neighbour on the same host, garbage collection, the first compilation.

    When it can happen
        Always.

    A healthy program
        Waits. A program that decides by its own clock, by what is ready, or by a short timeout does not.
    """

    kind = "slow-rank"
    otherwise = "the program makes no optimizer steps and puts nothing into the store"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        steps = min((told.steps for told in calm.ranks), default=0)
        if steps:
            yield TrialTarget(None, tuple(told.rank for told in calm.ranks), occurrences=steps)
        for _, target in targets_of(calm, UseKind.MESSAGE):
            yield replace(target, label="a message in the store")

    def stepped(self, number: int) -> None:
        if self.trial.target.site is None and self.is_here(None) and self.is_now():
            self.say(f"it was {_SLOW_S:.0f} s late after step {number}", None)
            time.sleep(_SLOW_S)

    def message(self, site: CodeSite, key: str) -> None:
        if self.trial.target.site is not None and self.is_here(site) and self.is_now():
            self.say(f"it was {_SLOW_S:.0f} s late with {key} in the store", site)
            time.sleep(_SLOW_S)


_LATE_S: Final = 3.0


class LateThread(Disturbance):
    """Work in another thread of one rank starts late.

    What it does
        On the chosen rank a thread waits for three seconds before it starts the work that it got at one line: a new thread, a
        function submitted to a pool, an item taken from a queue, or an event it waited for.

    Where it comes from
        A busy core, the GIL, a garbage collection, earlier work on a slow disk. It hits programs with two threads that communicate
        in one group and rely on the order that is usual on an idle machine.

    When it can happen
        Wherever the program has its own threads.

    A healthy program
        Gives the thread its own process group, or waits for it before it communicates.
    """

    kind = "late-thread"
    otherwise = "the program starts no thread"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        for use, target in targets_of(calm, UseKind.THREAD):
            yield replace(target, label=use.what)

    def begins(self, site: CodeSite, what: str) -> None:
        if self.is_here(site, what) and self.is_now():
            self.say(f"its thread started the work {_LATE_S:.0f} s late", site)
            time.sleep(_LATE_S)


class NotReady(Disturbance):
    """One rank polls whether something is ready, and gets "not yet".

    What it does
        A poll that would return yes returns "not yet" once on the chosen rank: `Event.is_set`, a wait with a timeout,
        `Future.done`, `Work.is_completed`, `queue.get_nowait`, a non-blocking lock, `store.check`.

    Where it comes from
        A thread that had no core, a slow disk or store, a message in flight. OLMo-core 57 (a barrier only where this
        rank's save is done), vLLM 32418 (a rank that cannot take a lock immediately leaves).

    When it can happen
        Where the answer depends on timing. It is certain if the polling thread did the work itself or has waited for it without a
        timeout, or if this rank put the key into the store.

    A healthy program
        Waits; or lets one rank poll and broadcasts the answer; or reduces the answers over all ranks before it acts on them.
    """

    kind = "not-ready"
    otherwise = "the program polls nothing whose answer depends on timing"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        for use, target in targets_of(calm, UseKind.POLL):
            yield replace(target, label=use.what)

    def polled(self, site: CodeSite, what: str) -> bool:
        if not self.is_here(site, what) or not self.is_now():
            return True
        self.say(f"{what} returned: not yet", site)
        return False


_AHEAD_S = 6 * 3600.0
_SLOWER = 0.1


class ClockDiffers(Disturbance):
    """One rank's clock is ahead by hours, or its time passes more slowly.

    What it does
        From the chosen read on (for a clock that is ahead: a read for a decision), the user's code on the chosen rank sees a clock (`time.time`, `monotonic`,
        `perf_counter`, `datetime.now`) that is six hours ahead, or one that runs at a tenth of the speed. Libraries see the
        right time.

    Where it comes from
        Two clocks never agree to the millisecond; one that was set wrongly, or on a suspended machine, is hours off.
        SpeechBrain 1167 (a checkpoint every few minutes by each rank's own clock, with a barrier in it).

    When it can happen
        Wherever a program reads the time.

    A healthy program
        Decides by steps, or lets one rank look at its clock and broadcasts the decision.
    """

    kind = "clock"
    otherwise = "the program reads no clock"

    @staticmethod
    def find(calm: Calm, decisions: Decisions) -> Iterator[TrialTarget]:
        """One target for all places: a rank has one clock, which is wrong everywhere from one moment on. It goes ahead where it is
        read for a decision, or else where it is read most often: a jump where an interval begins makes no interval longer.
        """
        found = [target for _, target in targets_of(calm, UseKind.CLOCK)]
        if found:
            ranks = tuple(sorted({rank for target in found for rank in target.ranks}))
            often = sum(target.occurrences for target in found)
            decides = max(found, key=lambda t: (t.site is not None and decisions.is_local(t.site), t.occurrences))
            yield replace(decides, what="", settings={"how": "ahead"}, label="ahead")
            yield TrialTarget(None, ranks, "", often, {"how": "slow"}, label="slow")

    def __init__(self, inside: InsideRank) -> None:
        super().__init__(inside)
        self._since: dict[str, float] = {}

    def clock(self, site: CodeSite, name: str, value: float) -> float:
        begun = self.is_here(self.trial.target.site if self._told else site) and (self._told or self.is_due())
        if not begun:
            return value
        if self.settings["how"] == "ahead":
            self.say("its clock was six hours ahead", site)
            return value + _AHEAD_S
        began = self._since.setdefault(name, value)
        self.say("its clock ran at a tenth of the speed", site)
        return began + (value - began) * _SLOWER


_SENT = ("SIGTERM", "SIGUSR1", "SIGUSR2")


class SignalToOne(Disturbance):
    """A signal reaches one rank.

    What it does
        After the chosen step the chosen rank gets SIGTERM, SIGUSR1 or SIGUSR2, whichever the program handles.

    Where it comes from
        A scheduler that warns before it takes back a node, Slurm's `--signal`, a person. OLMo 6d42d7ab (a collective that
        only a rank that knows the reason to cancel reaches), sleap-nn 471 (one rank is told to stop).

    When it can happen
        Where the program handles the signal itself. Without a handler the rank ends, and its launcher ends the others.

    A healthy program
        Only sets a flag in the handler, and asks all ranks at the end of each step whether one was told to stop.
    """

    kind = "signal"
    otherwise = "the program handles no signal"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        steps = min((told.steps for told in calm.ranks), default=0)
        for use, target in targets_of(calm, UseKind.SIGNAL, lambda use: use.what in _SENT):
            yield replace(target, site=None, occurrences=max(1, steps), label=use.what)

    def stepped(self, number: int) -> None:
        del number
        self._send(None)

    def backward(self, site: CodeSite | None) -> None:
        """For programs without an optimizer."""
        if self.inside.steps() == 0 and self.trial.target.occurrences <= 1:
            self._send(site)

    def _send(self, site: CodeSite | None) -> None:
        if self.is_here(None) and self.is_now():
            try:
                os.kill(os.getpid(), signal.Signals[self.trial.target.what])
            finally:  # after the handler, so that the handler's lines do not count as the fork
                self.say(f"it got {self.trial.target.what}", site)
