"""A plug-in of pytest: runs test files in several processes that are forks of the one that has collected them.

    python -m pytest -p tests.forked --forks 6

Interpreters of their own (pytest-xdist, `-n 4`) would each import torch, the providers' clients and all test files: on two
cores that is half a minute of CPU for nothing, so there can be few of them, and cores idle while tests wait for jobs.
A file, or a group of files that share something dear (`tests/order.py`), is run by one process from beginning to end.
"""

import gc
import json
import os
import selectors
import signal
import struct
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import pytest

_NUMBER = struct.Struct("<I")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="run test files in so many forks of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("forks")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None  # pytest's own loop
    session.config._tmp_path_factory.getbasetemp()  # one for all of them
    sys.stdout.flush()
    gc.collect()
    gc.freeze()  # what was imported and collected stays: no fork walks over it, which would copy it
    from warm import serving  # noqa: PLC0415 - on the path once pytest has read its settings

    needs_torch = any(item.get_closest_marker("torch") for item in session.items)
    with serving() if needs_torch else nullcontext():
        Forks(session).run(count)
    return True


def chunks_of(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """In the order of their first tests."""
    from order import GROUP  # noqa: PLC0415 - on the path once pytest has read its settings

    chunks: dict[str, list[pytest.Item]] = {}
    for name, of_file in groupby(items, lambda item: item.nodeid.partition("::")[0]):
        chunks.setdefault(GROUP.get(name, name), []).extend(of_file)
    return list(chunks.values())


@dataclass
class Fork:
    process: int
    told: int
    """A pipe: reports of its tests, a line of JSON each."""
    heard: bytes = b""
    """A line that is not whole yet."""
    rest: list[str] = field(default_factory=list)
    """Tests that it has begun to work on and not reported."""


class Forks:
    def __init__(self, session: pytest.Session) -> None:
        self._session, self._config = session, session.config
        self._chunks = chunks_of(session.items)
        self._items = {item.nodeid: item for item in session.items}

    def run(self, count: int) -> None:
        waiting, give = os.pipe()
        os.write(give, b"".join(map(_NUMBER.pack, range(len(self._chunks)))))
        os.close(give)
        forks = [self._fork(waiting) for _ in range(min(count, len(self._chunks)))]
        try:
            with selectors.DefaultSelector() as selector:
                for fork in forks:
                    selector.register(fork.told, selectors.EVENT_READ, fork)
                while selector.get_map():
                    for key, _ in selector.select():
                        if not self._hear(key.data):
                            selector.unregister(key.fileobj)
                            forks.remove(key.data)
                            self._end(key.data)
                    if self._session.shouldfail or self._session.shouldstop:
                        list(taken_from(waiting))  # nothing more is begun
            for number in taken_from(waiting):
                self._report_lost([item.nodeid for item in self._chunks[number]], "no process is left to run it")
        finally:
            for fork in forks:
                os.kill(fork.process, signal.SIGKILL)
                os.waitpid(fork.process, 0)
            os.close(waiting)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _fork(self, waiting: int) -> Fork:
        ours, theirs = os.pipe()
        process = os.fork()
        if process:
            os.close(theirs)
            return Fork(process, ours)
        code = 1
        try:
            os.close(ours)
            self._work(waiting, os.fdopen(theirs, "wb"))
            code = 0
        finally:
            os._exit(code)

    def _work(self, waiting: int, told: BinaryIO) -> None:
        """In the fork: take one chunk after another, and tell what became of each test."""
        capture = self._config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()  # into files of its own
        capture.suspend_global_capture()
        self._config.get_terminal_writer()._file = Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
        self._config.pluginmanager.register(Teller(self._config, told))
        for number in taken_from(waiting):
            chunk = self._chunks[number]
            tell(told, {"begun": [item.nodeid for item in chunk]})
            for item, following in zip(chunk, [*chunk[1:], None], strict=True):
                self._config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def _hear(self, fork: Fork) -> bool:
        """Whether more is to come from it."""
        piece = os.read(fork.told, 1 << 16)
        *lines, fork.heard = (fork.heard + piece).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "begun" in told:
                fork.rest = told["begun"]
                continue
            if isinstance(told["longrepr"], list):  # where and why it was skipped: a tuple, which JSON does not have
                told["longrepr"] = tuple(told["longrepr"])
            report = self._config.hook.pytest_report_from_serializable(config=self._config, data=told)
            if report.when == "teardown":
                fork.rest.remove(report.nodeid)
            self._config.hook.pytest_runtest_logreport(report=report)
        return bool(piece)

    def _end(self, fork: Fork) -> None:
        os.close(fork.told)
        _, status = os.waitpid(fork.process, 0)
        self._report_lost(fork.rest, f"the process that was to run it ended with {os.waitstatus_to_exitcode(status)}")

    def _report_lost(self, tests: list[str], why: str) -> None:
        for nodeid in tests:
            report = pytest.TestReport(nodeid, self._items[nodeid].location, {}, "failed", why, "call")
            self._config.hook.pytest_runtest_logreport(report=report)


class Teller:
    """In a fork: hands every report to the process that prints them."""

    def __init__(self, config: pytest.Config, told: BinaryIO) -> None:
        self._config, self._told = config, told

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        tell(self._told, self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


def tell(told: BinaryIO, what: dict[str, Any]) -> None:
    told.write(json.dumps(what, default=str).encode() + b"\n")
    told.flush()


def taken_from(waiting: int) -> Iterator[int]:
    """Numbers that no other process has taken. A read of so few bytes is not divided among readers of a pipe."""
    while taken := os.read(waiting, _NUMBER.size):
        yield _NUMBER.unpack(taken)[0]
