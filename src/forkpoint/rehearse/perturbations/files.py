"""One rank sees other files, cannot write its own, or has no room for them."""

import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.model import RESUMED, Calm, CodeSite, TrialTarget, UseKind
from forkpoint.rehearse.perturbation import Disturbance, WorkerDisturbance, targets_of


class FileDiffers(WorkerDisturbance):
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

    kind = "file-differs"
    otherwise = "the program looks for no file"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        made = {
            use.key for told in calm.ranks for use in told.uses if use.kind is UseKind.EXISTS and not any(use.values)
        }
        asked = [
            *(
                (use, target, "there" if any(use.values[:1]) else "not there")
                for use, target in targets_of(calm, UseKind.EXISTS)
            ),
            *(
                (u, t, "made")
                for u, t in targets_of(calm, UseKind.EXISTS, again=True)
                if all(u.values) and u.key in made
            ),
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


def _short(path: str) -> str:
    return path if len(path) <= 40 else f"...{path[-37:]}"


class OlderCheckpoint(Disturbance):
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

    kind = "older-checkpoint"
    otherwise = "a second run does not read what the first one saved"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        for use, target in targets_of(calm, UseKind.LOAD, lambda use: RESUMED in use.facts):
            label = f"{use.what}, {use.facts[RESUMED] or 'not there'} in its place"
            yield replace(target, settings={RESUMED: use.facts[RESUMED], "newest": use.what}, label=label)

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


_SLOW_S = 3.0


class WriteFails(Disturbance):
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

    kind = "write"
    otherwise = "the program writes no file"

    @staticmethod
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

    def writing(self, site: CodeSite | None, path: str) -> None:
        if not self.is_here(site) or not self.is_now():
            return
        if self.settings["how"] == "fails":
            self.say(f"{path} could not be written", site)
            raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)} (rehearsed by forkpoint)", path)
        self.say(f"writing {path} took {_SLOW_S:.0f} s longer", site)
        time.sleep(_SLOW_S)


class NoRoom(Disturbance):
    """One rank is told that its disk or memory is full.

    What it does
        From the chosen question on, the chosen rank is told that nothing is left: `shutil.disk_usage`, `os.statvfs`,
        `resource.getrusage`, `torch.cuda.mem_get_info`, `torch.cuda.memory_allocated` and similar.

    Where it comes from
        Another job's files on a node's scratch disk, old checkpoints, core dumps, a longer sequence than ever before. Programs ask
        before they save or cache, and do without if there is no room.

    When it can happen
        Wherever a rank asks how much room there is.

    A healthy program
        Reduces the answers over all ranks before it acts on them, or lets one rank ask and broadcasts the answer.
    """

    kind = "no-room"
    otherwise = "the program does not ask how much room is left"

    @staticmethod
    def find(calm: Calm, _decisions: Decisions) -> Iterator[TrialTarget]:
        for use, target in targets_of(calm, UseKind.ROOM):
            yield replace(target, label=use.what)

    def room(self, site: CodeSite, name: str, told: Any, full: Callable[[Any], Any]) -> Any:
        if not self.is_here(site, name) or not self.is_due():
            return told
        self.say(f"{name} said that nothing is left", site)
        return full(told)
