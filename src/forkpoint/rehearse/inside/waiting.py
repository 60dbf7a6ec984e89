"""Taps on how threads and ranks synchronise: polls, work started in other threads, messages in the store.

A poll is reported only if its answer depends on timing. If the asking thread did the work itself, or has already waited for it,
the answer is certain.
"""

import functools
import queue
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from forkpoint.rehearse.inside.places import CodePlaces, Swap
from forkpoint.rehearse.listening import Listener
from forkpoint.rehearse.model import CodeSite

_frame = sys._getframe  # noqa: SLF001 documented, and a tap needs its caller
_OWN: Final = "this thread's own"

_PLAIN_LOCK: Final[type] = type(threading.Lock())


class WaitingTaps:
    def __init__(self, listener: Listener, places: CodePlaces) -> None:
        self._listener = listener
        self._places = places
        self._done_by: dict[int, int | str] = {}
        """id of an event, future or queue -> the thread that set or filled it. If an id is reused for another object, a poll may
        be missed, but no answer is wrong.
        """
        self._sent: set[str] = set()
        """Keys that this rank has put into the store itself."""

    def open(self, swap: Swap) -> None:
        swap(threading.Event, "set", self._does)
        swap(queue.Queue, "put", self._does)
        swap(threading.Event, "is_set", self._asks)
        swap(threading.Event, "wait", self._waits)
        swap(Future, "done", self._asks)
        swap(Future, "result", self._waits)
        swap(dist.Work, "is_completed", self._asks)
        swap(dist.Work, "wait", self._waits)
        swap(threading.Thread, "join", self._waits)
        swap(queue.Queue, "get", self._takes)
        swap(queue.Queue, "get_nowait", self._takes)
        swap(threading, "Lock", self._lock)
        swap(threading.Thread, "start", self._start)
        swap(ThreadPoolExecutor, "submit", self._submit)
        swap(Store, "set", self._send)
        swap(Store, "add", self._send)
        swap(Store, "check", self._check)

    # -------------------------------------------------------------------------------------------- questions about objects

    def _does(self, original: Any, _name: str) -> Any:
        def does(owner: Any, *args: Any, **named: Any) -> Any:
            self._done_by[id(owner)] = threading.get_ident()
            return original(owner, *args, **named)

        return does

    def _asks(self, original: Any, name: str) -> Any:
        def asks(owner: Any) -> bool:
            is_so = original(owner)
            site = self._places.asking(_frame(1))
            if not is_so or site is None or not self._is_of_others(owner):
                return is_so
            return self._listener.polled(site, name)

        return asks

    def _waits(self, original: Any, _name: str) -> Any:
        """After a wait without a timeout the answer is certain. A wait with a timeout is a poll. An event that wakes a side thread
        starts work there.
        """

        def waits(owner: Any, *args: Any, **named: Any) -> Any:
            result = original(owner, *args, **named)
            site = self._places.asking(_frame(1))
            if site is None:
                return result
            limited = any(given is not None for given in (*args, *named.values()))
            if isinstance(owner, threading.Event) and result:
                self._began(site, "wait")
                if limited and self._is_of_others(owner):
                    return self._listener.polled(site, "wait")
            if not limited:
                self._done_by[id(owner)] = _OWN
            return result

        return waits

    def _takes(self, original: Any, name: str) -> Any:
        def takes(owner: Any, *args: Any, **named: Any) -> Any:
            site = self._places.asking(_frame(1))
            if site is None:
                return original(owner, *args, **named)
            at_once = name == "get_nowait" or not (args[0] if args else named.get("block", True))
            if at_once and not owner.empty() and self._is_of_others(owner) and not self._listener.polled(site, name):
                raise queue.Empty
            item = original(owner, *args, **named)
            self._began(site, "get")
            return item

        return takes

    def _is_of_others(self, owner: Any) -> bool:
        return self._done_by.get(id(owner)) not in (threading.get_ident(), _OWN)

    def _lock(self, original: Any, _name: str) -> Any:
        listener, places = self._listener, self._places

        class Lock(metaclass=_KindOfLock):
            """A class and not a function, as in Python 3.13: programs use it in annotations and `isinstance`."""

            def __new__(cls) -> Any:
                made = original()
                return made if places.asking(_frame(1)) is None else _Lock(made, listener, places)

        return Lock

    # ------------------------------------------------------------------------------------------------ work of other threads

    def _start(self, original: Any, _name: str) -> Any:
        def start(thread: Any) -> None:
            site = self._places.asking(_frame(1))
            if site is not None:
                thread.run = self._late(site, "start", thread.run)
            original(thread)

        return start

    def _submit(self, original: Any, _name: str) -> Any:
        def submit(pool: Any, work: Any, /, *args: Any, **named: Any) -> Any:
            site = self._places.asking(_frame(1))
            return original(pool, self._late(site, "submit", work) if site is not None else work, *args, **named)

        return submit

    def _late(self, site: CodeSite, what: str, work: Any) -> Any:
        @functools.wraps(work)
        def late(*args: Any, **named: Any) -> Any:
            self._listener.begins(site, what)
            return work(*args, **named)

        return late

    def _began(self, site: CodeSite, what: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            self._listener.begins(site, what)

    # ------------------------------------------------------------------------------------------------------------ the store

    def _send(self, original: Any, _name: str) -> Any:
        def send(store: Any, key: Any, *args: Any) -> Any:
            site = self._places.asking(_frame(1))
            if site is not None:
                self._sent.add(str(key))
                self._listener.message(site, str(key))
            return original(store, key, *args)

        return send

    def _check(self, original: Any, name: str) -> Any:
        def check(store: Any, keys: Any) -> bool:
            there = original(store, keys)
            site = self._places.asking(_frame(1))
            if not there or site is None or self._sent.issuperset(map(str, keys)):
                return there
            return self._listener.polled(site, name)

        return check


class _KindOfLock(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Lock | _PLAIN_LOCK)


class _Lock:
    """A lock of the user. "Held by another thread" is only claimed after another thread has really held it."""

    def __init__(self, lock: Any, listener: Listener, places: CodePlaces) -> None:
        self._rehearsed = (lock, listener, places)
        self._holders: set[int] = set()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:  # noqa: FBT002 as threading has it
        lock, listener, places = self._rehearsed
        held = lock.acquire(blocking, timeout)
        own = threading.get_ident()
        site = places.asking(_frame(1)) if held and (not blocking or timeout >= 0) else None
        if site is not None and self._holders - {own} and not listener.polled(site, "acquire"):
            lock.release()
            return False
        if held:
            self._holders.add(own)
        return held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self._rehearsed[0].release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rehearsed[0], name)
