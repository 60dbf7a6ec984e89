"""A file exists on one rank and not on the others, or the other way round.

What it does
    From the chosen check on, the chosen rank gets the opposite answer for one path (`os.path.exists`, `Path.is_file`,
    `os.stat` and similar), or finds one name fewer in a folder.

Where it comes from
    A checkpoint, a cache or a flag on a node's local disk; a shared disk that shows a new file to some nodes later; a
    download that failed on one node. NeMo Automodel 3261 (a folder of an interrupted save on one rank).

When it can happen
    Wherever ranks look for a file themselves, also if only one rank does. A file that the first run makes is taken away in a
    second run, where the others find it.

A healthy program
    Lets one rank look, and broadcasts the result.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank, WorkerDisturbance
from forkpoint.rehearse.model import RESUMED, Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    made = {use.key for told in calm.ranks for use in told.uses if use.kind is UseKind.EXISTS and not any(use.values)}
    asked = [
        *(
            (use, target, "there" if any(use.values[:1]) else "not there")
            for use, target in targets_of(calm, UseKind.EXISTS)
        ),
        *((u, t, "made") for u, t in targets_of(calm, UseKind.EXISTS, again=True) if all(u.values) and u.key in made),
    ]
    tried: set[tuple[CodeSite | None, tuple[int, ...], str]] = set()
    for use, target, truth in asked:
        if (target.site, target.ranks, truth) in tried:  # other files at this line would show the same
            continue
        tried.add((target.site, target.ranks, truth))
        if truth == "made":
            label = f"{_short(use.what)}, there in a second run"
            yield replace(target, settings={"ask": "exists", RESUMED: ""}, label=label)
        else:
            yield replace(target, settings={"ask": "exists"}, label=f"{_short(use.what)}, in truth {truth}")
    for use, target in targets_of(calm, UseKind.LISTING, lambda use: max(use.values, default=0) > 0):
        yield replace(target, settings={"ask": "listing"}, label=f"one name fewer in {_short(use.what)}")


def _short(path: str) -> str:
    return path if len(path) <= 40 else f"...{path[-37:]}"


class _Differs(WorkerDisturbance):
    def exists(self, site: CodeSite, path: str, there: bool) -> bool:
        if self.settings["ask"] != "exists" or not self.is_here(site, path) or not self.is_due():
            return there
        self.say(f"{path} was {'not there' if there else 'there'} for it", site)
        return not there

    def listing(self, site: CodeSite, path: str, names: list[Any]) -> list[Any]:
        if self.settings["ask"] != "listing" or not self.is_here(site, path) or not self.is_due() or not names:
            return names
        left = max(names)
        self.say(f"{left} was not in {path} for it", site)
        return [name for name in names if name != left]


def _install(inside: InsideRank) -> Disturbance:
    return _Differs(inside)


PERTURBATION = Perturbation(
    "file-differs", "a file that exists, or not", find, _install, "the program looks for no file"
)
