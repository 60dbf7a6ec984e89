"""Workers that redact pieces side by side, and answer in the order in which pieces came."""

import multiprocessing
import os
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

from forkpoint.collect.bundle.work import Kind, LeftOut, Name, Packed, Piece, Unnamed, Worker, begin, do
from forkpoint.redact import Redactor

_WORTH_WORKERS = 32 << 20
"""Bytes of evidence from which on starting processes pays."""
_WORKERS_AT_MOST = 8
_TOLD_AT_MOST = 4096
"""Names that are sent with every piece; of more, only those that a piece asked for."""


class Crew:
    def __init__(self, redactor: Redactor, pool: ProcessPoolExecutor | None, workers: int) -> None:
        self._redactor = redactor
        self._pool = pool
        self._ahead = 2 * workers if pool else 1
        self._worker = Worker(deepcopy(redactor))
        self._told: dict[Name, str] = {}
        self.counts: Counter[str] = Counter()

    def redact(self, name: str, kind: Kind, data: Iterable[bytes]) -> Iterator[Packed | LeftOut]:
        """Pieces of one file, redacted and packed."""
        waiting: deque[tuple[Piece, Future[Packed | Unnamed | LeftOut]]] = deque()
        for part in data:
            piece = Piece(kind, name, part, self._names())
            waiting.append((piece, self._hand_out(piece)))
            while len(waiting) > self._ahead:
                yield self._finish(*waiting.popleft())
        while waiting:
            yield self._finish(*waiting.popleft())

    def _finish(self, piece: Piece, future: "Future[Packed | Unnamed | LeftOut]") -> Packed | LeftOut:
        done = future.result()
        while isinstance(done, Unnamed):
            for name in done.names:
                self._told[name] = self._redactor.names.give(*name)
            asked = tuple((name, self._told[name]) for name in done.names)
            done = self._hand_out(replace(piece, names=(*self._names(), *asked))).result()
        if isinstance(done, Packed):
            self.counts += done.counts
        return done

    def _names(self) -> tuple[tuple[Name, str], ...]:
        return tuple(self._told.items()) if len(self._told) <= _TOLD_AT_MOST else ()

    def _hand_out(self, piece: Piece) -> "Future[Packed | Unnamed | LeftOut]":
        if self._pool:
            return self._pool.submit(do, piece)
        future = Future[Packed | Unnamed | LeftOut]()
        future.set_result(self._worker.do(piece))
        return future


@contextmanager
def crew(redactor: Redactor, size: int) -> Generator[Crew]:
    """`size`: bytes of evidence, as far as known. The redactor gets all names that are given."""
    workers = min(_WORKERS_AT_MOST, len(os.sched_getaffinity(0)))
    if size < _WORTH_WORKERS or workers == 1:
        yield Crew(redactor, None, 1)
        return
    # Spawned, not forked: numpy has threads, which a fork would leave behind with their locks.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, begin, (redactor,)) as pool:
        yield Crew(redactor, pool, workers)
