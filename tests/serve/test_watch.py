"""What is an incident, when is it read again, and what becomes of a diagnosis that does not end."""

import asyncio
import os
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cases import CASES
from forkpoint.live import children
from forkpoint.live.children import NotDiagnosed
from forkpoint.live.serve import watch as folders_module
from forkpoint.live.serve.watch import (
    LIST,
    Diagnoser,
    FolderWatch,
    IncidentFolder,
    IncidentPage,
    Settling,
    find_folders,
)
from looping import for_each


def page_of(html: bytes) -> IncidentPage:
    return IncidentPage("healthy", "", 0.95, None, "All is well.", html)


def folder(state: str, key: str = "k") -> IncidentFolder:
    return IncidentFolder(key, "name", "/path", state, 0.0)


def write(path: Path, text: str = "x", when: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (when, when))


def test_a_folder_with_files_of_its_own_is_one_incident(tmp_path: Path) -> None:
    write(tmp_path / "dump")
    write(tmp_path / "logs" / "log")

    found = find_folders(str(tmp_path))

    assert [f.path for f in found.found] == [str(tmp_path)]
    assert found.alone


def test_otherwise_each_folder_with_files_is_one_newest_first(tmp_path: Path) -> None:
    write(tmp_path / "old" / "deep" / "dump", when=1)
    write(tmp_path / "new" / "dump", when=2)
    write(tmp_path / ".hidden" / "dump")
    (tmp_path / "empty").mkdir()

    found = find_folders(str(tmp_path))

    assert [f.name for f in found.found] == ["new", "old"]
    assert not found.alone


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "dump")
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "link").symlink_to(tmp_path / "elsewhere")

    assert find_folders(str(tmp_path / "served")).found == ()


@for_each("change", ["content", "time", "name", "more", "gone"])
def test_the_state_changes_with_names_sizes_and_times(tmp_path: Path, change: str) -> None:
    write(tmp_path / "a")
    write(tmp_path / "b")
    before = find_folders(str(tmp_path)).found[0]

    match change:
        case "content":
            write(tmp_path / "a", "xx")
        case "time":
            write(tmp_path / "a", when=2)
        case "name":
            (tmp_path / "a").rename(tmp_path / "c")
        case "more":
            write(tmp_path / "sub" / "c")
        case _:
            (tmp_path / "a").unlink()

    after = find_folders(str(tmp_path)).found[0]
    assert after.key == before.key
    assert after.state != before.state


def test_more_folders_than_fit_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders_module, "MAX_FOLDERS", 2)
    for n in range(5):
        write(tmp_path / str(n) / "dump", when=n + 1)

    found = find_folders(str(tmp_path))

    assert [f.name for f in found.found] == ["4", "3"]
    assert found.left_out == 3


def test_a_folder_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    assert find_folders(str(tmp_path / "gone")).found == ()


def test_files_are_read_when_two_looks_find_them_the_same() -> None:
    settling = Settling()

    due = [bool(settling.find_due([folder(state)], now)) for now, state in enumerate("aaabcc")]

    assert due == [False, True, True, False, False, True]


def test_files_that_never_rest_are_read_all_the_same() -> None:
    settling = Settling()

    due = [now for now in range(35) if settling.find_due([folder(str(now))], now)]

    assert due == [10, 20, 30]


def test_what_is_shown_stays_until_the_new_diagnosis_is_there(tmp_path: Path) -> None:
    write(tmp_path / "job" / "dump")
    begun_again, released = asyncio.Event(), asyncio.Event()
    calls: list[str] = []

    async def diagnose(folder: IncidentFolder, events: str, home: str | None) -> IncidentPage | NotDiagnosed:
        calls.append(folder.state)
        if len(calls) > 1:
            begun_again.set()
            await released.wait()
        return page_of(f"{len(calls)} {home} {events}".encode())

    async def scenario() -> list[bytes]:
        watch = FolderWatch(str(tmp_path), diagnose, every_s=0.01)
        watching = asyncio.create_task(watch.run())
        pages: list[bytes] = []

        async def page() -> bytes:
            while not (watch.shown() and isinstance(watch.shown()[0].result, IncidentPage)):
                await watch.news(30)
            return watch.shown()[0].result.html

        pages.append(await page())
        seen = watch.version(LIST)
        write(tmp_path / "job" / "dump", "more")
        await begun_again.wait()
        pages.append(await page())
        assert watch.version(LIST) == seen
        released.set()
        await watch.news(30)
        assert watch.version(LIST) != seen
        pages.append(await page())
        watching.cancel()
        await watch.stop()
        return pages

    first, second, third = asyncio.run(scenario())

    assert first == second
    assert [page.split()[:2] for page in (first, third)] == [[b"1", b"/"], [b"2", b"/"]]
    assert len(set(calls)) == len(calls) == 2


def test_an_incident_that_comes_later_and_one_that_goes_are_news(tmp_path: Path) -> None:
    async def diagnose(folder: IncidentFolder, events: str, home: str | None) -> IncidentPage | NotDiagnosed:
        return page_of(b"page")

    async def scenario() -> None:
        watch = FolderWatch(str(tmp_path), diagnose, every_s=0.01)
        watching = asyncio.create_task(watch.run())
        empty = watch.version(LIST)
        write(tmp_path / "late" / "dump")
        while not (watch.shown() and watch.shown()[0].result):
            await watch.news(30)
        key = watch.shown()[0].folder.key
        assert watch.version(key) not in {"", "gone"}
        shutil.rmtree(tmp_path / "late")
        while watch.shown():
            await watch.news(30)
        assert watch.version(key) == "gone"
        assert watch.version(LIST) == empty
        watching.cancel()
        await watch.stop()

    asyncio.run(scenario())


def test_a_diagnosis_that_takes_too_long_is_ended_and_said(tmp_path: Path) -> None:
    shutil.copytree(CASES / "0001" / "capture", tmp_path / "job")
    job = find_folders(str(tmp_path)).found[0]

    result = asyncio.run(Diagnoser(limit_s=0.0)(job, "/events", None))

    assert isinstance(result, NotDiagnosed)
    assert "not done after" in result.why


def test_a_diagnosis_that_is_no_longer_wanted_ends_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "never-written")
    started: asyncio.Queue[subprocess.Popen[bytes]] = asyncio.Queue()
    start = subprocess.Popen

    def told(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*args, **options)
        started.put_nowait(process)
        return process

    async def scenario() -> int | None:
        monkeypatch.setattr(children.subprocess, "Popen", told)
        waits_for_ever = replace(folder("x"), path=str(tmp_path / "never-written"))
        work = asyncio.create_task(Diagnoser()(waits_for_ever, "/events", None))
        worker = await started.get()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        return worker.returncode

    assert asyncio.run(scenario()) == -signal.SIGKILL


def test_a_diagnosis_that_crashes_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "sitecustomize.py", "import forkpoint.evidence\nforkpoint.evidence.read = lambda _: 1 / 0")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    result = asyncio.run(Diagnoser()(folder("x"), "/events", None))

    assert result == NotDiagnosed("the diagnosis failed (ZeroDivisionError: division by zero)")


def test_a_worker_that_cannot_be_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(children.subprocess, "Popen", refuse)

    result = asyncio.run(Diagnoser()(folder("x"), "/events", None))

    assert result == NotDiagnosed("the diagnosis could not be started (Resource temporarily unavailable)")
