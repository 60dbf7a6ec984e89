"""One rank resumes from an older checkpoint.

What it does
    The job runs again in the folder that the calm run left, so that it resumes. On the chosen rank the newest checkpoint is
    missing: an overwritten file has its previous version, folder listings lack the newest file or its folder, and checks
    whether they exist return no.

Where it comes from
    A checkpoint on a node's local disk that was not written; a shared disk that shows the newest file to some nodes later; a
    rank that was killed while it saved.

When it can happen
    Where a second run in the same folder reads what the first one saved.

A healthy program
    Lets one rank choose the checkpoint and broadcasts its name or step; or checks that all ranks resume from the same.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.listening import Disturbance, InsideRank
from forkpoint.rehearse.model import RESUMED, Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Perturbation, targets_of


def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
    for use, target in targets_of(calm, UseKind.LOAD, lambda use: RESUMED in use.facts):
        label = f"{use.what}, {use.facts[RESUMED] or 'not there'} in its place"
        yield replace(target, settings={RESUMED: use.facts[RESUMED], "newest": use.what}, label=label)


class _Older(Disturbance):
    """Hides the newest file on this rank; if there is an older version, it is read instead."""

    def exists(self, site: CodeSite, path: str, there: bool) -> bool:
        if there and not self.settings[RESUMED] and self._belongs_to_newest(path):
            self.say(f"{path} was not there for it", site)
            return False
        return there

    def listing(self, site: CodeSite, path: str, names: list[Any]) -> list[Any]:
        left = [name for name in names if not self._belongs_to_newest(str(name))]
        if len(left) < len(names) and not self.settings[RESUMED]:
            self.say(f"{self.settings['newest']} was not in {path} for it", site)
            return left
        return names

    def loading(self, site: CodeSite | None, path: str) -> str:
        if self.settings[RESUMED] and self._is_newest(path):
            self.say(f"it read an older version of {path}", site)
            return self.settings[RESUMED]
        return path

    def _is_newest(self, path: str) -> bool:
        return self.is_here(self.trial.target.site) and Path(path).name == Path(self.settings["newest"]).name

    def _belongs_to_newest(self, path: str) -> bool:
        """It is the file, or its folder: a checkpoint of several files has a folder."""
        newest = Path(self.settings["newest"])
        return self.is_here(self.trial.target.site) and Path(path).name in (newest.name, newest.parent.name)


def _install(inside: InsideRank) -> Disturbance:
    return _Older(inside)


PERTURBATION = Perturbation(
    "older-checkpoint", "an older checkpoint", find, _install, "a second run does not read what the first one saved"
)
