"""A call inside `try` raises on one rank.

What it does
    The chosen call raises once, on the chosen rank, an exception that the `try` around it catches.

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
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of

_SAYS = "rehearsed by forkpoint"


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for use, target in targets_of(calm, UseKind.GUARDED):
        yield replace(target, label=f"{use.what}, which `except {use.facts.get('catches', '')}` is for")


class _Raises(Disturbance):
    def guarded(self, site: CodeSite, call: str, catches: tuple[type[BaseException], ...]) -> None:
        if self.is_here(site, call) and self.is_now():
            error = _make(catches[0])
            self.say(f"{call} raised {type(error).__name__}", site)
            raise error


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
