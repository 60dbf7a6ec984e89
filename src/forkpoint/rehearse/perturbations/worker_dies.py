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

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank, LoaderFacts
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for use, target in targets_of(calm, UseKind.LOADER, lambda use: use.facts.get("workers", "0") != "0"):
        yield replace(target, label=f"{use.what}, {use.facts['workers']} workers")


class _Dies(Disturbance):
    def workers(self, site: CodeSite | None, facts: LoaderFacts, processes: Sequence[Any]) -> None:
        if processes and self.is_here(site, f"loader {facts.number}") and self.is_now():
            self.say("a worker of its loader was killed", site)
            with suppress(ProcessLookupError):
                os.kill(processes[0].pid, signal.SIGKILL)


def _install(inside: InsideRank) -> Disturbance:
    return _Dies(inside)


PERTURBATION = Perturbation("worker-dies", "a loader's worker that dies", find, _install, "no loader has workers")
