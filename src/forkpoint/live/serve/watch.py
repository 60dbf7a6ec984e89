"""Looks at the served folder again and again, has what changed diagnosed, and notifies the pages that wait.

It polls: file systems notify of changes in different ways, and network file systems not at all.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from forkpoint.errors import UsageError
from forkpoint.evidence.files import find_files
from forkpoint.live.children import NotDiagnosed, PageTask, Task, diagnose_async
from forkpoint.model.world import format_ranks

# ---------------------------------------------------------------------------------------------------------------------
# Which folders are incidents, and in which state their files are.

MAX_FOLDERS = 200
"""Pages are kept in memory, half a megabyte each at most: 100 MB."""


@dataclass(frozen=True, slots=True)
class IncidentFolder:
    """The evidence of one incident on disk."""

    key: str
    """Stands for the folder in URLs: folder names are untrusted input."""
    name: str
    path: str
    state: str
    """Changes with the names, sizes and times of its files."""
    newest: float
    """When the newest file was written, in seconds since 1970."""


@dataclass(frozen=True, slots=True)
class IncidentFolders:
    found: tuple[IncidentFolder, ...]
    """Newest first."""
    left_out: int
    alone: bool
    """The served folder itself is the incident: there is nothing to list."""


def find_folders(root: str) -> IncidentFolders:
    """If `root` (an absolute path) contains files, it is one incident with everything below; else each sub-folder is one."""
    try:
        with os.scandir(root) as entries:
            shown = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:  # gone, perhaps to come back: nothing to show meanwhile
        return IncidentFolders((), 0, alone=False)
    if any(entry.is_file() for entry in shown):
        return IncidentFolders(tuple(_look([root])), 0, alone=True)
    # Links to folders are not followed, here as below: they could lead anywhere.
    found = sorted(
        _look([entry.path for entry in shown if entry.is_dir(follow_symlinks=False)]), key=lambda f: (-f.newest, f.name)
    )
    return IncidentFolders(tuple(found[:MAX_FOLDERS]), len(found[MAX_FOLDERS:]), alone=False)


def _look(paths: Sequence[str]) -> Iterator[IncidentFolder]:
    for path in paths:
        files = list(_states(path))
        if files:
            state = _digest("\0".join(f"{file}\0{size}\0{time}" for file, size, time in files))
            newest = max(time for _, _, time in files) / 1e9
            yield IncidentFolder(_digest(path), Path(path).name, path, state, newest)


def _states(path: str) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of every file that would be read."""
    try:
        files = find_files([path])
    except UsageError:  # gone since
        return
    for file in files:
        try:
            found = Path(file).stat()
        except OSError:  # gone as well
            continue
        yield file, found.st_size, found.st_mtime_ns


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]


# ---------------------------------------------------------------------------------------------------------------------
# Folder -> its page and its row in the list, by a child process.

_LIMIT_S = 1800.0
"""Twice the usual limit: a shared login node may be five times as slow as the machine it was measured on."""
_MAX_RANGES = 8


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """What is kept of a diagnosis: one per incident, so only what is shown."""

    cause: str
    suspects: str
    confidence: float
    when: str | None
    """The last event with a UTC time."""
    headline: str
    html: bytes


@dataclass(frozen=True, slots=True)
class Diagnoser:
    source: Sequence[str] = ()
    embed_source: bool = False
    limit_s: float = _LIMIT_S

    async def __call__(self, folder: IncidentFolder, events: str, home: str | None) -> IncidentPage | NotDiagnosed:
        task = Task((folder.path,), tuple(self.source), page=PageTask(events, home, self.embed_source))
        found = await diagnose_async(task, self.limit_s)
        if isinstance(found, NotDiagnosed):
            return found
        return IncidentPage(
            cause=found.cause,
            suspects=format_ranks(found.suspects, _MAX_RANGES),
            confidence=found.confidence,
            when=found.when,
            headline=found.headline,
            html=found.page.encode(),
        )


LIST = "list"
"""The key of the page that lists incidents, in place of a folder's."""

_EVERY_S = 1.0
_PATIENCE_S = 10.0
"""A log that grows all the time never settles; it is read this often all the same."""
_SHARE = 10
"""Looking at 100,000 files takes seconds: it gets no more than a tenth of the time."""
_AT_ONCE = 2
"""Diagnoses at the same time: a large incident must not delay small ones, and few at a time save memory."""

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
        """Folder key -> its state, and when it was last still."""

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
        """Ends streams and workers."""
        self.closed = True
        self._tell()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def shown(self) -> list[ShownIncident]:
        return [self._results.get(f.key) or ShownIncident(f, None, "") for f in self.folders.found]

    def version(self, page: str) -> str:
        """The version of the list, or of the incident with this key."""
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
        """Taken before the folder is read, so files that change meanwhile make it outdated. A lone page has no list."""
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
    """The event stream that tells a page of this version about a newer one."""
    return f"/events?page={page}&seen={version}"
