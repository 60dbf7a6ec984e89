"""Where guards meet: a real store, which may not answer."""

import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import TCPStore

from forkpoint.guard import messages
from forkpoint.guard.messages import Blind, GuardStore, _connect

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _answers_may_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine takes longer than the 3 s after which a guard does without."""
    monkeypatch.setattr(messages, "_ANSWERS_S", 15.0)


@contextmanager
def other_host() -> Iterator[tuple[int, int]]:
    """A process that serves a store, and its port: a fork of this one, which has imported torch."""
    reads, writes = os.pipe()
    parent = os.getpid()
    with warnings.catch_warnings(action="ignore"):  # of threads, which libraries keep for computing
        pid = os.fork()
    if pid == 0:
        try:
            store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=600))
            os.write(writes, str(store.port).encode())
            while os.getppid() == parent:
                time.sleep(1)
        finally:
            os._exit(1)
    os.close(writes)
    try:
        yield pid, int(os.read(reads, 100))
    finally:
        os.close(reads)
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def connect(port: int) -> GuardStore:
    return GuardStore(_connect("127.0.0.1", port), "guard/")


def test_what_one_tells_the_other_hears_and_what_nobody_told_is_none() -> None:
    host = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=600))
    one, other = connect(host.port), connect(host.port)
    one.publish("a", b"\x00\xff")
    one.publish("c", b"")
    assert one.read(["c"]) == [b""]  # a store takes words without an answer: now they have arrived
    assert other.read(["a", "b", "c"]) == [b"\x00\xff", None, b""]  # who waits for what is not there goes blind
    one.publish("b", b"2")
    assert one.read(["b"]) == [b"2"]
    assert other.read(["b"]) == [b"2"]


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_host_that_dies_or_freezes_makes_it_blind(how: str) -> None:
    with other_host() as (pid, port):
        guard_store = connect(port)
        guard_store.publish("a", b"1")
        assert guard_store.read(["a"]) == [b"1"]
        os.kill(pid, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)  # until it is gone, or stopped with all its threads
        with pytest.raises(Blind, match="does not answer"):
            guard_store.read(["a"])


def test_a_lost_connection_is_made_again_without_the_jobs_own_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also on rank 0, whose first connection is the served store's own."""
    host = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=600))
    monkeypatch.setattr(messages, "_known_address", [("127.0.0.1", host.port)])
    monkeypatch.setattr(
        messages.distributed_c10d, "_get_default_store", lambda: pytest.fail("the job's client was asked")
    )

    for rank in (0, 3):
        made = messages.connect_guards(rank, 1, time.monotonic() + 600.0, {}, again=True)
        made.publish(f"beat/{rank}", b"1")
        assert made.read([f"beat/{rank}"]) == [b"1"]
