"""Something fails on one rank."""

import errno
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import InsideRank, LoaderFacts
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Disturbance, WorkerDisturbance, passes, targets_of

_REHEARSED = "rehearsed by forkpoint"
_LONG_S = 3.0
"""Longer than a few quick attempts; a rank that waits for so long is only slow."""


class ExceptionInTry(WorkerDisturbance):
    """A call inside `try` raises on one rank.

    What it does
        The chosen call raises an exception that the `try` around it catches, on the chosen rank or in the workers of its loader:
        once, or for three seconds, so that a second attempt fails, too.

    Where it comes from
        A sample that cannot be decoded, a request that fails, a full disk: whatever the handler is for.
        NeMo Automodel 2468 (an exception caught on one rank, backward skipped), OLMo-core 380 (clean-up on the rank that
        failed waits for the others), Automodel 3261 (a file that exists on one rank).

    When it can happen
        At a call where the program expects it: somebody wrote the handler. Handlers of `StopIteration`,
        `KeyboardInterrupt` and missing modules are left alone, and so are calls that communicate. A method of a library's object
        raises only errors of that library or of the operating system; a function that only computes (`repr`) none of the latter.

    A healthy program
        Raises on all ranks, tells all ranks before it takes another path, or does something in the handler that no other rank
        takes part in.
    """

    kind = "exception-in-try"
    otherwise = "no call inside `try` was reached"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        found = [
            replace(target, label=f"{use.what}, which `except {use.facts.get('catches', '')}` is for")
            for use, target in targets_of(calm, UseKind.GUARDED)
        ]
        yield from (replace(target, settings={"how": "once"}) for target in found)
        for target in found:
            if target.occurrences > 1:
                label = f"{target.label}, for {_LONG_S:.0f} s"
                yield replace(target, settings={"how": "long"}, label=label)

    def __init__(self, inside: InsideRank) -> None:
        super().__init__(inside)
        self._until = 0.0

    def guarded(self, site: CodeSite, call: str, catches: tuple[type[BaseException], ...]) -> None:
        if not self.is_here(site, call):
            return
        if self.is_now():
            error = _error_of(catches[0])
            self._until = time.monotonic() + (_LONG_S if self.settings["how"] == "long" else 0.0)
            self.say(f"{call} raised {type(error).__name__}", site)
            raise error
        if time.monotonic() < self._until:
            raise _error_of(catches[0])


def _error_of(kind: type[BaseException]) -> BaseException:
    """Exceptions whose constructor needs more than a text are created without calling it."""
    if kind in (Exception, BaseException):
        return RuntimeError(_REHEARSED)
    if issubclass(kind, OSError):
        return kind(errno.EIO, f"Input/output error ({_REHEARSED})")
    try:
        return kind(_REHEARSED)
    except TypeError:
        return kind.__new__(kind)


_OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB (rehearsed by forkpoint)"
)


class OutOfMemory(Disturbance):
    """One rank runs out of memory in its forward or backward pass.

    What it does
        In the chosen step the outermost module's call, or `backward`, raises `torch.OutOfMemoryError` on the chosen rank,
        with the text of CUDA's allocator.

    Where it comes from
        One rank gets the longest sequence, or shares its GPU. fairseq 6c006a34 (the batch is skipped on one rank, which then
        misses the gradients' all_reduce).

    When it can happen
        Wherever a model is trained.

    A healthy program
        Does not catch it, so that the job ends with a clear error; or agrees with all ranks before it skips the step.
    """

    kind = "out-of-memory"
    otherwise = "no module is called in training"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        for kind, label in ((UseKind.FORWARD, "forward"), (UseKind.BACKWARD, "backward")):
            for target in passes(calm, kind):
                yield replace(target, settings={"where": label}, label=label)

    def forward(self, site: CodeSite | None) -> None:
        self._fail_in("forward", site)

    def backward(self, site: CodeSite | None) -> None:
        self._fail_in("backward", site)

    def _fail_in(self, where: str, site: CodeSite | None) -> None:
        if self.settings["where"] == where and self.is_here(site) and self.is_now():
            self.say(f"it ran out of memory in {where}", site)
            raise self.inside.torch.OutOfMemoryError(_OUT_OF_MEMORY)


class WorkerDies(Disturbance):
    """One rank's loader worker is killed.

    What it does
        On the chosen rank, a worker process of one loader gets SIGKILL, as from the kernel when memory runs out.

    Where it comes from
        Workers that load large samples; a small /dev/shm.

    When it can happen
        Where a loader has workers.

    A healthy program
        Does not catch the error that torch then raises, so that the job ends; or tells all ranks before it builds a new loader.
    """

    kind = "worker-dies"
    otherwise = "no loader has workers"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        for use, target in targets_of(calm, UseKind.LOADER, lambda use: use.facts.get("workers", "0") != "0"):
            yield replace(target, label=f"{use.what}, {use.facts['workers']} workers")

    def workers(self, site: CodeSite | None, facts: LoaderFacts, processes: Sequence[Any]) -> None:
        if processes and self.is_here(site, f"loader {facts.number}") and self.is_now():
            self.say("a worker of its loader was killed", site)
            with suppress(ProcessLookupError):
                os.kill(processes[0].pid, signal.SIGKILL)
