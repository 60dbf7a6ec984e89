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

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of

_LATE_S: Final = 3.0


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for use, target in targets_of(calm, UseKind.THREAD):
        yield replace(target, label=use.what)


class _Late(Disturbance):
    def begins(self, site: CodeSite, what: str) -> None:
        if self.is_here(site, what) and self.is_now():
            self.say(f"its thread started the work {_LATE_S:.0f} s late", site)
            time.sleep(_LATE_S)


def _install(inside: InsideRank) -> Disturbance:
    return _Late(inside)


PERTURBATION = Perturbation("late-thread", "a thread that is late", find, _install, "the program starts no thread")
