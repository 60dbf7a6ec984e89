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

from collections.abc import Iterator
from dataclasses import replace

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for use, target in targets_of(calm, UseKind.POLL):
        yield replace(target, label=use.what)


class _NotReady(Disturbance):
    def polled(self, site: CodeSite, what: str) -> bool:
        if not self.is_here(site, what) or not self.is_now():
            return True
        self.say(f"{what} returned: not yet", site)
        return False


def _install(inside: InsideRank) -> Disturbance:
    return _NotReady(inside)


PERTURBATION = Perturbation(
    "not-ready",
    "something that is not ready yet",
    find,
    _install,
    "the program polls nothing whose answer depends on timing",
)
