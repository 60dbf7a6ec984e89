"""Work in another thread of one rank begins late.

What it does
    On the chosen rank a thread waits for three seconds before it begins the work that it was given at one line: a thread that
    is started, a function handed to a pool, an item taken from a queue, an event that was waited for.

Where it comes from
    A core that is taken, the interpreter's lock, a garbage collection, a slow disk under the work before it. Two threads that
    communicate in one group, in the order that is usual on an idle machine.

When it can happen
    Wherever the program has threads of its own.

A healthy program
    Gives the thread a process group of its own, or waits for it before it communicates itself.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, Inside
from forkpoint.rehearse.model import Calm, Site, Target, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of

_LATE_S: Final = 3.0


def find(calm: Calm, _decisions: Decisions) -> Iterator[Target]:
    for use, target in targets_of(calm, UseKind.THREAD):
        yield replace(target, label=use.what)


class _Late(Disturbance):
    def begins(self, site: Site, what: str) -> None:
        if self.is_here(site, what) and self.is_now():
            self.say(f"its thread began the work {_LATE_S:.0f} s later", site)
            time.sleep(_LATE_S)


def _install(inside: Inside) -> Disturbance:
    return _Late(inside)


PERTURBATION = Perturbation("late-thread", "a thread that is late", find, _install, "the program starts no thread")
