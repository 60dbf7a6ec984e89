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
    `KeyboardInterrupt` and missing modules are left alone, and so are calls that communicate.

A healthy program
    Raises on all ranks, tells all ranks before it takes another path, or does something in the handler that no other rank
    takes part in.
"""

import errno
import time
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank, WorkerDisturbance
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of

_SAYS = "rehearsed by forkpoint"
_LONG_S = 3.0
"""Longer than a few quick attempts; a rank that waits for so long is only slow."""


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


class _Raises(WorkerDisturbance):
    def __init__(self, inside: InsideRank) -> None:
        super().__init__(inside)
        self._until = 0.0

    def guarded(self, site: CodeSite, call: str, catches: tuple[type[BaseException], ...]) -> None:
        if not self.is_here(site, call):
            return
        if self.is_now():
            error = _make(catches[0])
            self._until = time.monotonic() + (_LONG_S if self.settings["how"] == "long" else 0.0)
            self.say(f"{call} raised {type(error).__name__}", site)
            raise error
        if time.monotonic() < self._until:
            raise _make(catches[0])


def _make(kind: type[BaseException]) -> BaseException:
    """Exceptions whose constructor needs more than a text are created without calling it."""
    if kind in (Exception, BaseException):
        return RuntimeError(_SAYS)
    if issubclass(kind, OSError):
        return kind(errno.EIO, f"Input/output error ({_SAYS})")
    try:
        return kind(_SAYS)
    except TypeError:
        return kind.__new__(kind)


def _install(inside: InsideRank) -> Disturbance:
    return _Raises(inside)


PERTURBATION = Perturbation(
    "exception-in-try", "an exception that is caught", find, _install, "no call inside `try` was reached"
)
