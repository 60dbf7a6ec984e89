"""torch's debug server: each rank answers over HTTP from C++ threads, even while its Python is stuck.

A worker lists its handlers. NCCL's recorder (`dump_nccl_trace_pickle`, CUDA builds) is asked without stacks, since those
need the job's GIL; builds without it have `fr_trace_json`. When nothing moves, `dump_traceback` gives each rank's stack.
`pyspy_dump` stops the process for a moment, so it is used only if the user asks for it.
"""

import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat

from forkpoint.errors import InputError, UsageError
from forkpoint.evidence.stacks.read import looks_like_stacks
from forkpoint.live.watch.sources import Dump, Gathered, Spool, tell_missing
from forkpoint.live.watch.sources.ask import NoAnswer, SourceAddress, ask_http, parse_address
from forkpoint.traces.dump import MAX_BYTES, decode, looks_like_dump

_AT_ONCE = 8
"""Answers held in memory at the same time: 512 MB if all of them are as long as a dump may be."""
_MAX_LIST = 1 << 16
_MAX_STACKS = 1 << 20
_MAX_PAGE = 64 << 20
_NCCL = "dump_nccl_trace_pickle"
_ANY = "fr_trace_json"
_WORKER_ON_PAGE = re.compile(r"Rank (\d{1,7}): http://([^/\s<]{1,253})/handler/")
_WORKER_IN_STORE = re.compile(r"debug_server/rank(\d{1,7})\b[^\n]{0,40}?http://([^/\s<'\"]{1,253})")


@dataclass(frozen=True, slots=True)
class DebugWorker:
    rank: int
    address: SourceAddress


@dataclass(frozen=True, slots=True)
class _Answered:
    worker: DebugWorker
    dump: bytes | NoAnswer
    stacks: bytes | NoAnswer | None


def parse_workers(texts: Sequence[str]) -> tuple[DebugWorker, ...]:
    """`HOST:PORT` in the order of ranks, or `RANK=HOST:PORT`. Raises UsageError."""
    workers: list[DebugWorker] = []
    for number, text in enumerate(texts):
        rank, equals, address = text.rpartition("=")
        if equals and not (rank.isascii() and rank.isdecimal()):
            raise UsageError(f"{text}: must be HOST:PORT or RANK=HOST:PORT")
        workers.append(DebugWorker(int(rank) if equals else number, parse_address(address)))
    if len({worker.rank for worker in workers}) < len(workers):
        raise UsageError("--worker names a rank twice; give RANK=HOST:PORT for each")
    return tuple(workers)


class DebugServer:
    name = "debug-server"

    def __init__(
        self,
        workers: Sequence[DebugWorker] = (),
        frontend: SourceAddress | None = None,
        *,
        py_spy: bool = False,
        dated: bool,
    ) -> None:
        """`dated`: answers may be compared with this machine's clock."""
        self._workers = tuple(workers)
        self._frontend = frontend
        self._world_size: int | None = None
        self._py_spy = py_spy
        self._dated = dated
        self._handlers: dict[int, frozenset[str]] = {}

    def gather(self, spool: Spool, *, stacks: bool) -> Gathered:
        notes: list[str] = []
        if self._frontend is not None and self._world_size is None:
            notes += self._find_workers(self._frontend)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = list(pool.map(self._ask, self._workers, repeat(stacks)))
        dumps = [self._keep(a.worker, a.dump, spool) for a in answers if isinstance(a.dump, bytes)]
        missing = [(a.worker, a.dump.why) for a in answers if isinstance(a.dump, NoAnswer)]
        missing += [(a.worker, f"no stack: {a.stacks.why}") for a in answers if isinstance(a.stacks, NoAnswer)]
        if not dumps:
            self._world_size = None  # a restarted job has other workers: ask the frontend again
        for worker, _ in missing:
            self._handlers.pop(worker.rank, None)  # it may come back as another process
        found = [
            spool.put(f"rank_{a.worker.rank}_stacks.txt", a.stacks) for a in answers if isinstance(a.stacks, bytes)
        ]
        notes += tell_missing((worker.rank, str(worker.address), why) for worker, why in missing)
        return Gathered(tuple(dumps), tuple(found), world_size=self._world_size, notes=tuple(notes))

    def _keep(self, worker: DebugWorker, dump: bytes, spool: Spool) -> Dump:
        suffix = "json" if dump.lstrip()[:1] == b"{" else "pickle"
        path = spool.put(f"rank_{worker.rank}.{suffix}", dump)
        return Dump(path, time.monotonic(), time.time() if self._dated else None)

    def _find_workers(self, frontend: SourceAddress) -> list[str]:
        found = list_workers(frontend)
        if isinstance(found, NoAnswer):
            return [f"frontend {frontend}: {found.why}"]
        self._workers, self._world_size = found.workers, found.world_size
        return []

    def _ask(self, worker: DebugWorker, stacks: bool) -> _Answered:
        if worker.rank not in self._handlers:
            listed = ask_http(worker.address, "GET", "/handler/", _MAX_LIST)
            if isinstance(listed, NoAnswer):
                return _Answered(worker, listed, None)
            self._handlers[worker.rank] = _read_list(listed)
        dump = self._ask_dump(worker)
        standing = self._ask_stacks(worker) if stacks and isinstance(dump, bytes) else None
        return _Answered(worker, dump, standing)

    def _ask_dump(self, worker: DebugWorker) -> bytes | NoAnswer:
        if _NCCL in self._handlers[worker.rank]:
            query = "includestacktraces=false&onlyactive=false"
            dump = ask_http(worker.address, "POST", f"/handler/{_NCCL}?{query}", MAX_BYTES)
            if isinstance(dump, NoAnswer) or _has_entries(dump):
                return dump
        dump = ask_http(worker.address, "POST", f"/handler/{_ANY}", MAX_BYTES)
        if isinstance(dump, bytes) and not looks_like_dump(dump):
            return NoAnswer("its answer is not a dump")
        return dump

    def _ask_stacks(self, worker: DebugWorker) -> bytes | NoAnswer:
        handler = "pyspy_dump?nonblocking=1" if self._py_spy else "dump_traceback"
        text = ask_http(worker.address, "POST", f"/handler/{handler}", _MAX_STACKS)
        if isinstance(text, bytes) and not looks_like_stacks(text.decode("utf-8", "replace")):
            return NoAnswer("its answer is not a stack")
        return text


@dataclass(frozen=True, slots=True)
class Listed:
    workers: tuple[DebugWorker, ...]
    world_size: int | None
    """None: there may be more of them."""


def list_workers(frontend: SourceAddress) -> Listed | NoAnswer:
    """The page of wait counters lists all ranks, but waits for each; the store lists those that have started."""
    page = ask_http(frontend, "GET", "/wait_counters", _MAX_PAGE)
    pattern = _WORKER_ON_PAGE
    if isinstance(page, NoAnswer):
        page, pattern = ask_http(frontend, "GET", "/tcpstore", _MAX_PAGE), _WORKER_IN_STORE
    if isinstance(page, NoAnswer):
        return page
    found = {int(rank): address for rank, address in pattern.findall(page.decode("utf-8", "replace"))}
    try:
        workers = tuple(DebugWorker(rank, parse_address(text)) for rank, text in sorted(found.items()))
    except UsageError as error:
        return NoAnswer(str(error))
    if not workers:
        return NoAnswer("its page names no worker")
    return Listed(workers, len(found) if pattern is _WORKER_ON_PAGE else None)


def _read_list(listed: bytes) -> frozenset[str]:
    try:
        names: object = json.loads(listed)
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def _has_entries(dump: bytes) -> bool:
    """NCCL's recorder is empty in a job that uses gloo alone."""
    try:
        return bool(looks_like_dump(dump) and decode(dump, "").group.size)
    except InputError:
        return False
