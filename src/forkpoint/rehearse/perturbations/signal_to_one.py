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

import os
import signal
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of

_SENT = ("SIGTERM", "SIGUSR1", "SIGUSR2")


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    steps = min((told.steps for told in calm.ranks), default=0)
    for use, target in targets_of(calm, UseKind.SIGNAL, lambda use: use.what in _SENT):
        yield replace(target, site=None, occurrences=max(1, steps), label=use.what)


class _Signal(Disturbance):
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


def _install(inside: InsideRank) -> Disturbance:
    return _Signal(inside)


PERTURBATION = Perturbation("signal", "a signal to one rank", find, _install, "the program handles no signal")
