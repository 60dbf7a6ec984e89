"""One rank asks whether something is ready, and is told "not yet".

What it does
    At the chosen question, which was answered with yes, the chosen rank is told "not yet", once: `Event.is_set`, a wait with
    a limit, `Future.done`, `Work.is_completed`, `queue.get_nowait`, a lock that is taken without waiting, `store.check`.

Where it comes from
    A thread that had no core, a disk or a store that was slow, a message on its way. OLMo-core 57 (a barrier where this
    rank's save is done), vLLM 32418 (a rank that cannot take a lock at once leaves).

When it can happen
    Where the answer is a matter of time. What the asking thread has done itself, or has waited for without a limit, is
    there; a key that this rank has put into the store, too.

A healthy program
    Waits; or lets one rank ask and broadcasts the answer; or reduces the answers over all ranks before it acts on them.
"""

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, Inside
from forkpoint.rehearse.model import Calm, Site, Target, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of


def find(calm: Calm, _decisions: Decisions) -> Iterator[Target]:
    for use, target in targets_of(calm, UseKind.POLL):
        yield replace(target, label=use.what)


class _NotReady(Disturbance):
    def polled(self, site: Site, what: str) -> bool:
        if not self.is_here(site, what) or not self.is_now():
            return True
        self.say(f"{what} was answered with no, not yet", site)
        return False


def _install(inside: Inside) -> Disturbance:
    return _NotReady(inside)


PERTURBATION = Perturbation(
    "not-ready",
    "something that is not ready yet",
    find,
    _install,
    "the program asks nothing whose answer is a matter of time",
)
