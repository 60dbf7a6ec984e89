"""A write fails on one rank, or takes long.

What it does
    The chosen write (opening a file for writing, `torch.save`, creating a folder) raises "No space left on device" on the
    chosen rank, or takes three seconds longer.

Where it comes from
    A full disk, a quota, a folder that another job left behind, a shared disk under load. NeMo Automodel 3261 (one rank
    cannot save, 128 GPUs wait in the next collective).

When it can happen
    Wherever a rank writes.

A healthy program
    Does not catch it, so that the job ends with a clear error; or tells all ranks whether the write worked. A slow
    write is waited for.
"""

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import replace

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of

_SLOW_S = 3.0


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    """One target per place, even if it writes many files."""
    places: dict[tuple[str, int], TrialTarget] = {}
    for _, target in targets_of(calm, UseKind.WRITE):
        if target.site is not None:
            key = (target.site.file, target.site.line)
            before = places.get(key, replace(target, ranks=(), occurrences=0))
            ranks = tuple(sorted({*before.ranks, *target.ranks}))
            places[key] = replace(target, ranks=ranks, occurrences=before.occurrences + target.occurrences)
    for how in ("fails", "is slow"):
        yield from (replace(target, settings={"how": how}, label=how) for target in places.values())


class _Write(Disturbance):
    def writing(self, site: CodeSite | None, path: str) -> None:
        if not self.is_here(site) or not self.is_now():
            return
        if self.settings["how"] == "fails":
            self.say(f"{path} could not be written", site)
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (rehearsed by forkpoint)", path)
        self.say(f"writing {path} took {_SLOW_S:.0f} s longer", site)
        time.sleep(_SLOW_S)


def _install(inside: InsideRank) -> Disturbance:
    return _Write(inside)


PERTURBATION = Perturbation("write", "a write that fails or is slow", find, _install, "the program writes no file")
