"""Looks at the served folder again and again, has what changed diagnosed, and notifies the pages that wait.

It polls: file systems notify of changes in different ways, and network file systems not at all.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from forkpoint.live.diagnosing import NotDiagnosed
from forkpoint.serve.diagnosis import IncidentPage
from forkpoint.serve.folders import IncidentFolder, IncidentFolders, find_folders

LIST = "list"
"""Stands for the page that lists incidents where the key of a folder is expected."""

_EVERY_S = 1.0
_PATIENCE_S = 10.0
"""A log that grows all the time never settles; it is read this often all the same."""
_SHARE = 10
"""Looking at 100,000 files takes seconds: it gets no more than a tenth of the time."""
_AT_ONCE = 2
"""So that one large incident does not hold up the small ones, and memory is not shared by many."""

Diagnose = Callable[[IncidentFolder, str, str | None], Awaitable[IncidentPage | NotDiagnosed]]
"""Takes a folder, the address of its event stream and that of the list."""


@dataclass(frozen=True, slots=True)
class ShownIncident:
    """An incident as readers see it."""

    folder: IncidentFolder
    result: IncidentPage | NotDiagnosed | None
    """None: being read for the first time."""
    version: str
    """Changes with what is shown."""


class Settling:
    """When may files that change be read? When two looks in a row find them the same, or after a while anyway."""

    def __init__(self) -> None:
        self._looks: dict[str, tuple[str, float]] = {}
        """Of each folder, its state and when it was last still."""

    def find_due(self, folders: Sequence[IncidentFolder], now: float) -> list[IncidentFolder]:
        due: list[IncidentFolder] = []
        looks: dict[str, tuple[str, float]] = {}
        for folder in folders:
            state, since = self._looks.get(folder.key, ("", now))
            still = state == folder.state or now - since >= _PATIENCE_S
            looks[folder.key] = (folder.state, now if still else since)
            due += [folder] if still else []
        self._looks = looks
        return due


class FolderWatch:
    def __init__(self, root: str, diagnose: Diagnose, every_s: float = _EVERY_S) -> None:
        self.root = root
        self.folders = IncidentFolders((), 0, alone=False)
        self.closed = False
        self._diagnose = diagnose
        self._every_s = every_s
        self._settling = Settling()
        self._results: dict[str, ShownIncident] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled."""
        first = True
        while True:
            begun = time.monotonic()
            folders = await asyncio.to_thread(find_folders, self.root)
            is_news = [f.key for f in folders.found] != [f.key for f in self.folders.found]
            self.folders = folders
            if is_news:
                self._tell()
            due = self._settling.find_due(folders.found, begun)
            for folder in folders.found if first else due:
                if self._is_old(folder):
                    self._tasks[folder.key] = asyncio.create_task(self._renew(folder))
            first = False
            self._forget_what_is_gone()
            await asyncio.sleep(max(self._every_s, _SHARE * (time.monotonic() - begun)))

    async def stop(self) -> None:
        """Streams end, workers are ended."""
        self.closed = True
        self._tell()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def shown(self) -> list[ShownIncident]:
        return [self._results.get(f.key) or ShownIncident(f, None, "") for f in self.folders.found]

    def version(self, page: str) -> str:
        """Of the list, or of the incident with this key."""
        if page == LIST:
            return sha256(repr([(s.folder.key, s.version) for s in self.shown()]).encode()).hexdigest()[:32]
        return next((s.version for s in self.shown() if s.folder.key == page), "gone")

    async def news(self, timeout_s: float) -> None:
        """Returns when anything has changed, or after that time."""
        try:
            await asyncio.wait_for(self._news.wait(), timeout_s)
        except TimeoutError:
            return

    def _is_old(self, folder: IncidentFolder) -> bool:
        """Whether what is shown is outdated and no diagnosis of it is running."""
        task, known = self._tasks.get(folder.key), self._results.get(folder.key)
        return (task is None or task.done()) and (known is None or known.version != self._version_of(folder))

    async def _renew(self, folder: IncidentFolder) -> None:
        version = self._version_of(folder)
        home = None if self.folders.alone else "/"
        async with self._at_once:
            result = await self._diagnose(folder, events_of(folder.key, version), home)
        self._results[folder.key] = ShownIncident(folder, result, version)
        self._tell()

    def _version_of(self, folder: IncidentFolder) -> str:
        """The state before it is read: files that change meanwhile make it old at once. A page alone has no list."""
        return f"{folder.state}{'-alone' if self.folders.alone else ''}"

    def _forget_what_is_gone(self) -> None:
        there = {folder.key for folder in self.folders.found}
        for key in self._results.keys() - there:
            del self._results[key]
        self._tasks = {key: task for key, task in self._tasks.items() if key in there or not task.done()}

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def events_of(page: str, version: str) -> str:
    """The address where a page of this version hears that there is a newer one."""
    return f"/events?page={page}&seen={version}"
