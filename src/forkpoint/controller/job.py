"""The controller: ranks on a Monarch mesh that all run the same method at a time."""

import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import monarch.actor
from monarch.actor import Future, MeshFailure, ProcMesh, this_host

from forkpoint.controller.answers import (
    POLL_S,
    SETTLE_S,
    CallAnswers,
    CallFailure,
    Death,
    Hello,
    Raised,
    RankProcesses,
    RecorderLook,
    Returned,
    Testimony,
    find_other_ops,
    find_unequal_counts,
    gather,
    last_line,
    rank_in,
)
from forkpoint.controller.rank import RankActor, WitnessActor
from forkpoint.controller.verdicts import StepFailed, cite_facts, conclude, diagnose_failure
from forkpoint.errors import UsageError
from forkpoint.live.stall import stall_limit

RANKS, WITNESSES = "forkpoint_ranks", "forkpoint_witnesses"
START_S = 300.0
"""For processes to start and import torch: minutes on a cold shared file system."""
COUNT_S = 5.0
"""Counters come at once unless a rank holds the GIL; then they are unknown, and count as not moved."""
TESTIFY_S = 30.0
"""A first dump with stacks takes two seconds of CPU, and ranks may share one; a rank that holds the GIL never answers."""
REASON_S = 20.0
"""Monarch reports how a process ended after about seven seconds."""
STOP_S = 15.0
LOOK_SHARE = 0.01
"""Share of the time spent comparing what was issued: a cost that nobody notices."""


class Controller:
    """Starts processes, in each of them a process group and `trainer()`. Use it in a `with`.

    `ranks`: how many processes on this host; or a mesh of your own to run on, which is stopped with the job.
    `timeout_s`: the longest that a call may take; NCCL's own limit is ten minutes too.
    `every_call`: compare what was issued after every call, whatever it costs.
    """

    def __init__(
        self,
        ranks: int | ProcMesh,
        trainer: Callable[[], object],
        *,
        backend: str | None = None,
        timeout_s: float = 600.0,
        every_call: bool = False,
    ) -> None:
        self._wanted = ranks
        self._make = (trainer, backend)
        self._processes = RankProcesses(())
        self._timeout_s = timeout_s
        self._every_call = every_call
        self._call = 0
        self._looked = 0.0
        self._look_cost = 0.0
        self._reasons: dict[int, str] = {}
        self._running = False
        self.unhandled = _hook_of_others()
        """Gets the faults that do not concern our ranks."""

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def run(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Runs a method of the trainer on every rank. Returns what each returned, by rank; or raises StepFailed."""
        if not self._running:
            raise UsageError(f"{method}: the job does not run; start it with `with Controller(...) as job`")
        self._call += 1
        returned = self._hear(self._ranks.run.stream(self._call, method, args, kwargs), method, self._timeout_s)
        self._compare(returned, method)
        return [answer.value for answer in returned]

    def stop(self) -> None:
        """Ends all processes, whatever they do. May be called twice."""
        if not self._running:
            return
        self._running = False
        try:
            with suppress(TimeoutError):  # those that do not stop are killed next
                self._procs.stop().get(timeout=STOP_S)
        finally:
            self._processes.kill()
            self._processes.close(STOP_S)
            # The hook stays: Monarch may notice only later that these have ended, and would then end this process.

    def _start(self) -> None:
        wanted = self._wanted
        monarch.actor.unhandled_fault_hook = self._on_fault
        self._procs = this_host().spawn_procs(per_host={"gpus": wanted}) if isinstance(wanted, int) else wanted
        self._running = True
        self._size = self._procs.extent.nelements
        self._ranks = self._procs.spawn(RANKS, RankActor, *self._make)
        self._witnesses = self._procs.spawn(WITNESSES, WitnessActor)
        hellos: list[Hello] = [waiting.get(timeout=START_S) for waiting in self._ranks.greet.stream()]
        self._processes = RankProcesses(hellos)
        host, port = next(hello.address for hello in hellos if hello.address)
        near = self._processes.count == self._size
        self._hear(self._ranks.start.stream(("localhost" if near else host, port)), "start", START_S)
        self._look("start")  # a first look is slow: it loads what later ones need

    def _hear(self, sent: Iterable[Future[Any]], method: str, limit_s: float) -> list[Returned]:
        """What all ranks returned. Reads the counters half-way, to tell slow from stuck (`live/stall.py`)."""
        stall_s = stall_limit(None, limit_s)
        got = self._gather(sent, limit_s - stall_s)
        still = False
        if got.silent and not got.failed:
            before = self._count()
            gather(got, self._processes, stall_s)
            still = bool(got.silent) and before == self._count()  # some rank waits, and none moved for the limit
        returned = [answer for answer in got.answers if isinstance(answer, Returned)]
        if len(returned) == self._size:
            return sorted(returned, key=lambda answer: answer.rank)
        raise self._failed(replace(self._failure(got, method, limit_s), still=still))

    def _gather(self, sent: Iterable[Future[Any]], limit_s: float) -> CallAnswers:
        got = CallAnswers(list(sent), self._size)
        gather(got, self._processes, limit_s)
        return got

    def _count(self) -> dict[int, RecorderLook]:
        return {look.rank: look for look in self._gather(self._witnesses.count.stream(), COUNT_S).answers}

    def _failure(self, got: CallAnswers, method: str, limit_s: float) -> CallFailure:
        return CallFailure(
            self._call,
            method,
            self._size,
            raised=tuple(answer for answer in got.answers if isinstance(answer, Raised)),
            dead=tuple(got.dead),
            silent=got.silent,
            limit_s=None if got.failed else limit_s,
        )

    def _compare(self, returned: list[Returned], method: str) -> None:
        """Compares counters after every call, which is cheap; the ops themselves if those differ, and now and then."""
        due = (time.monotonic() - self._looked) * LOOK_SHARE >= self._look_cost
        if not (find_unequal_counts(returned) or due or self._every_call):
            return
        looks = self._look(method)
        if not (find_unequal_counts(looks) or find_other_ops(looks)):
            return
        time.sleep(SETTLE_S)  # another thread of a rank may be about to issue it
        looks = self._look(method)
        missing, other = find_unequal_counts(looks), find_other_ops(looks)
        if missing or other:
            failure = CallFailure(self._call, method, self._size, splits=missing or other, counted=bool(missing))
            raise self._failed(failure)

    def _look(self, method: str) -> list[RecorderLook]:
        began = time.monotonic()
        got = self._gather(self._witnesses.look.stream(), TESTIFY_S)
        if len(got.answers) < self._size:
            raise self._failed(self._failure(got, method, TESTIFY_S))
        self._looked = time.monotonic()
        self._look_cost = self._looked - began
        return got.answers

    def _failed(self, failure: CallFailure) -> StepFailed:
        """Collects evidence from the ranks, stops them, and judges."""
        try:
            got = self._gather(self._witnesses.testify.stream(), TESTIFY_S)
            # A rank that ends after the others got stuck or parted is not the cause.
            later = () if failure.limit_s or failure.splits else got.dead
            dead = self._hear_reasons({death.rank: death for death in (*later, *failure.dead)})
        finally:
            self._processes.kill()  # they may be stuck in a collective, and Monarch would ask them first
            self.stop()
        testimony = tuple(answer for answer in got.answers if isinstance(answer, Testimony))
        failure = replace(failure, dead=dead, testimony=testimony)
        folder = Path(tempfile.mkdtemp(prefix="forkpoint-call-"))
        seen = diagnose_failure(failure, folder)
        verdict = conclude(failure, seen, cite_facts(failure, folder))
        return StepFailed(verdict, failure.call, failure.method, str(folder))

    def _hear_reasons(self, dead: dict[int, Death]) -> tuple[Death, ...]:
        """The kernel shows at once that a process has ended; Monarch reports later how."""
        ends = time.monotonic() + REASON_S
        while any(not d.how and d.rank not in self._reasons for d in dead.values()) and time.monotonic() < ends:
            time.sleep(POLL_S)
        return tuple(replace(d, how=d.how or self._reasons.get(d.rank, "")) for d in dead.values())

    def _on_fault(self, failure: MeshFailure) -> None:
        """Monarch's own hook would end this process. Faults of our ranks are reported by the call that fails."""
        if not failure.mesh_name.startswith((RANKS, WITNESSES, "logger-")):
            self.unhandled(failure)
        elif (rank := rank_in(failure.report())) is not None:
            self._reasons.setdefault(rank, last_line(failure.report()))


def _hook_of_others() -> Callable[[MeshFailure], None]:
    """The hook that is in place without a controller: an earlier controller may have left its own."""
    hook = monarch.actor.unhandled_fault_hook
    owner = getattr(hook, "__self__", None)
    return owner.unhandled if isinstance(owner, Controller) else hook
