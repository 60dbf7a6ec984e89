"""The pipes of TORCH_NCCL_DEBUG_INFO_PIPE_FILE: a byte in `<stem><rank>.pipe` makes that rank write its dump.

The rank writes while it trains, to the file it would use after a timeout. That file is read once it is complete, and
stays where it is.
"""

import os
import re
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forkpoint.errors import InputError
from forkpoint.live.watch.sources import Dump, Gathered, Spool, tell_missing
from forkpoint.traces.dump import MAX_BYTES, decode, looks_like_dump

POKE_EVERY_S = 60.0
"""As often as torch's own periodic dumper: a dump with stacks takes the GIL for 20 ms and more."""
_PATIENCE_S = 8.0
"""For all dumps together. torch checks its pipe once a second, and before its first dump it imports torch._inductor, which it
asks about stacks: that took 4.7 s when measured, and takes longer if its files are not cached. The next look picks up dumps
that take longer.
"""
_AGAIN_S = 0.1
_WRITERS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")

_Version = tuple[int, int]
"""Time and size of a file."""


def told_prefixes(environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(environ[name] for name in _WRITERS if environ.get(name))


def usual_prefixes(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Where a process with this environment writes dumps: as the environment says, else the default of each torch release."""
    cache = f"{environ.get('HOME') or '/tmp'}/.cache"  # noqa: S108 - as torch does
    newest = environ.get("XDG_CACHE_HOME") or cache
    defaults = (f"{newest}/torch/comm_lib_trace_rank_", f"{cache}/torch/comm_lib_trace_rank_")
    older = (f"{cache}/torch/nccl_trace_rank_", "/tmp/nccl_trace_rank_")  # noqa: S108 - as torch does
    return told_prefixes(environ) or tuple(dict.fromkeys((*defaults, *older)))


@dataclass(slots=True)
class _Rank:
    pipe: str
    before: dict[str, _Version]
    """The files it could write, as they were when it was asked."""
    dump: Dump | None = None
    """The last complete one."""
    is_due: bool = False
    """It was asked, and has not written yet."""


@dataclass(frozen=True, slots=True)
class PipeAnswers:
    dumps: Mapping[int, Dump]
    missing: tuple[tuple[int, str, str], ...]
    """Rank, pipe, and why it has no new dump."""


class Pipes:
    name = "pipe"

    def __init__(
        self,
        stem: str,
        prefixes: Sequence[str],
        every_s: float = POKE_EVERY_S,
        ranks: frozenset[int] | None = None,
    ) -> None:
        """`ranks`: only these are asked. None: all that have a pipe."""
        self._stem, self._prefixes, self._every_s, self._only = stem, tuple(prefixes), every_s, ranks
        self._ranks: dict[int, _Rank] = {}
        self._poked: float | None = None

    def gather(self, spool: Spool, *, stacks: bool) -> Gathered:  # noqa: ARG002 - these dumps have stacks anyway
        answers = self.ask(spool)
        notes = () if self._ranks or answers.missing else (f"no pipe is called {self._stem}<rank>.pipe",)
        return Gathered(tuple(answers.dumps.values()), notes=(*notes, *tell_missing(answers.missing)))

    def ask(self, spool: Spool) -> PipeAnswers:
        """Waits until all have written, or the patience is over."""
        missing: list[tuple[int, str, str]] = []
        now = time.monotonic()
        if self._poked is None or now - self._poked >= self._every_s:
            self._poked = now
            missing += self._poke()
        deadline = now + _PATIENCE_S
        while any(r.is_due for r in self._ranks.values()):
            for number, rank in self._ranks.items():
                self._collect(number, rank, spool)
            if time.monotonic() > deadline:
                break
            time.sleep(_AGAIN_S)
        older = ", nor where older releases write" if len(self._prefixes) > 1 else ""
        yet = f"no dump yet at {self._prefixes[0]}<rank>{older}"
        late = [(number, rank.pipe, yet) for number, rank in self._ranks.items() if rank.is_due]
        dumps = {number: rank.dump for number, rank in self._ranks.items() if rank.dump}
        return PipeAnswers(dumps, (*missing, *late))

    def _poke(self) -> list[tuple[int, str, str]]:
        missing: list[tuple[int, str, str]] = []
        for number, pipe in _find_pipes(self._stem):
            if self._only is not None and number not in self._only:
                continue
            before = {path: version for path in self._files(number) if (version := _version(path))}
            why = _write_byte(pipe)
            if why:
                missing.append((number, pipe, why))
                self._ranks.pop(number, None)
            else:
                known = self._ranks.get(number)
                self._ranks[number] = _Rank(pipe, before, known.dump if known else None, is_due=True)
        return missing

    def _files(self, rank: int) -> list[str]:
        return [f"{prefix}{rank}" for prefix in self._prefixes]

    def _collect(self, number: int, rank: _Rank, spool: Spool) -> None:
        for path in self._files(number) if rank.is_due else ():
            version = _version(path)
            if version is None or version == rank.before.get(path) or version[1] > MAX_BYTES:
                continue
            data = Path(path).read_bytes()
            if _is_whole(data) and _version(path) == version:
                kept = spool.put(f"rank_{number}.pickle", data)
                rank.dump = Dump(kept, time.monotonic(), version[0] / 1e9)
                rank.is_due = False


def _find_pipes(stem: str) -> list[tuple[int, str]]:
    folder, start = os.path.split(stem)
    name = re.compile(re.escape(start) + r"(\d{1,7})\.pipe")
    try:
        found = [(match, entry) for entry in os.scandir(folder or ".") if (match := name.fullmatch(entry.name))]
    except OSError:
        return []
    return sorted((int(match[1]), entry.path) for match, entry in found)


def _write_byte(pipe: str) -> str | None:
    """Why it could not be written, if so. Never waits, and never writes into anything but a pipe."""
    try:
        descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return f"nobody reads the pipe ({error.strerror}): has the rank ended?"
    try:
        if not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return "is not a pipe"
        os.write(descriptor, b"1")
    except OSError as error:
        return f"the pipe is full ({error.strerror}): its rank no longer reads"
    finally:
        os.close(descriptor)
    return None


def _version(path: str) -> _Version | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - polled ten times a second for every rank
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _is_whole(data: bytes) -> bool:
    try:
        return looks_like_dump(data) and decode(data, "").header.cut is None
    except InputError:
        return False
