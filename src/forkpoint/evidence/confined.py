"""Reads files in a child process with limits: if a file crashes it, only that file is lost.

The child is a fork, so nothing has to be imported again. It reads the files in order and sends what each says, as packed
records and table entries, through a pipe; if it dies, another child continues after that file. A process with several
threads cannot fork safely and reads the files itself, like `--in-process`.
"""

import gc
import json
import os
import resource
import signal
import struct
import threading
import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import BinaryIO, NoReturn, Protocol

from forkpoint.errors import UnreadableInput
from forkpoint.evidence.files import is_url
from forkpoint.evidence.landlock import give_up_rights
from forkpoint.evidence.reading import Reading
from forkpoint.model.capture import InternalProblem, Problem
from forkpoint.model.layout import I64, Reader, pack_text
from forkpoint.model.records import RecordStore, TraceRecord

MEMORY = 768 << 20
"""Bytes that a child may use in addition to what it had at the fork."""
OPEN_FILES = 256
CPU_S = 15
"""CPU time for one file at most; a file larger than `_LARGE` bytes gets one more second per `_PER_SECOND` bytes."""
_LARGE, _PER_SECOND = 64 << 20, 1 << 20
_SHARE_S, _SHARE_PER_SECOND = 0.25, 3 << 20
"""What any file may take: somewhat longer than Python needs to decode a dump of its size. Less where `_SHARES_S` says so."""
_SHARES_S = 9.0
"""What these shares come to at most, for files of `_LARGE` bytes together; one more second per `_PER_SECOND` bytes beyond."""
_SPARE_S = 8.0
"""What all files together may take beyond their shares: a small file that unpacks to a lot needs it, and ten such files do not get
ten times as much.
"""
_LEAST_S = 0.05
"""A file that may take less is not read. A child that died is charged as much: starting the next one takes about that."""
OUTPUT = 256 << 20
"""Bytes that the children may send, in addition to the size of the files."""
_HEAD = struct.Struct("<BQ")
_SPARE = struct.Struct("<d")
_BUFFER = 1 << 18
_PROGRESS_STEP = 1 << 20
"""Bytes between two reports of progress."""


class _Message(IntEnum):
    """What a message from the child holds."""

    DONE = 0
    TABLES = 1
    RECORD = 2
    TEXT = 3
    EMPTY = 4
    PROBLEM = 5
    INTERNAL = 6
    PROGRESS = 7


File = tuple[str, str]
"""Path, and name in reports."""
Count = Callable[[int], None]
"""Called with the number of bytes of a file as they are read."""
Begin = Callable[[str], Count]
"""Called with the path of a file before it is read."""


class ReadOne(Protocol):
    def __call__(self, file: File, reading: Reading, *, count: Count | None) -> None:
        """Adds what a file says, and any problem with it."""


def can_confine() -> bool:
    return threading.active_count() == 1


def read_confined(files: Sequence[File], reading: Reading, read_one: ReadOne, begin: Begin | None) -> None:
    """Adds what the files say. `begin`: for reporting progress."""
    done, budget = 0, ReadingBudget([_size(path) for path, _ in files])
    while done < len(files):
        child = _Child(files, done, reading, read_one, budget, counts=begin is not None)
        try:
            done = child.take(files, done, reading, begin)
        finally:
            ended = child.end()
        if done < len(files):
            reading.problems.append(Problem(files[done][1], _why(ended, budget.most_s(done))))
            if -ended in _CPU_SIGNALS:
                budget.use(done, budget.most_s(done))
            budget.spare_s = max(0.0, budget.spare_s - _LEAST_S)
            done += 1


_CPU_SIGNALS = (signal.SIGXCPU, signal.SIGPROF)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # a URL, or standard input
        return _LARGE


class ReadingBudget:
    """CPU time and output of one reading. Each file has a share of the time by its size; beyond it, all files use `spare_s`."""

    def __init__(self, sizes: Sequence[int]) -> None:
        shares = [_SHARE_S + size / _SHARE_PER_SECOND for size in sizes]
        scale = min(1.0, (_SHARES_S + _beyond(sum(sizes))) / max(sum(shares), _LEAST_S))
        self._shares = [share * scale for share in shares]
        self._most = [CPU_S + _beyond(size) for size in sizes]
        self.spare_s = _SPARE_S
        self.room = OUTPUT + sum(sizes)

    def most_s(self, place: int) -> float:
        """CPU time for the file at this place, if it is read next."""
        return min(self._most[place], self._shares[place] + self.spare_s)

    def allows(self, place: int) -> bool:
        return self.most_s(place) >= _LEAST_S and self.room > 0

    def use(self, place: int, used_s: float) -> None:
        self.spare_s = max(0.0, self.spare_s - max(0.0, used_s - self._shares[place]))


def _beyond(size: int) -> float:
    """Seconds for what is large."""
    return max(0, size - _LARGE) / _PER_SECOND


def _why(status: int, most_s: float) -> str:
    """Why a child ended, as a problem of the file that it was reading."""
    by = -status
    if by in _CPU_SIGNALS:
        return f"took more than {most_s:.0f} s to read; the rest of it is left out. Use --in-process if you trust it"
    reason = f"signal {signal.Signals(by).name}" if by in set(signal.Signals) else f"exit code {status}"
    return (
        f"crashed the process that read it ({reason}); left out. Check where it came from before you open it otherwise"
    )


class _Child:
    """Reads the files from `first` on."""

    def __init__(
        self,
        files: Sequence[File],
        first: int,
        reading: Reading,
        read_one: ReadOne,
        budget: ReadingBudget,
        *,
        counts: bool,
    ) -> None:
        self._budget = budget
        read_end, write_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(read_end)
            give_up_rights(network=not any(is_url(path) for path, _ in files))
            _work(write_end, lambda pipe: _send_files(files, first, reading, read_one, pipe, budget, counts=counts))
        os.close(write_end)
        self._pipe = os.fdopen(read_end, "rb", _BUFFER)

    def take(self, files: Sequence[File], done: int, reading: Reading, begin: Begin | None) -> int:
        """Adds what the child sends until it ends. Returns how many files are done, of which `done` were before."""
        count = begin(files[done][0]) if begin else None
        while len(head := self._pipe.read(_HEAD.size)) == _HEAD.size:
            kind, size = _HEAD.unpack(head)
            data = self._pipe.read(size)
            if len(data) < size:
                break
            self._budget.room -= size
            if kind == _Message.DONE:
                done += 1
                self._budget.spare_s = _SPARE.unpack(data)[0]
                count = begin(files[done][0]) if begin and done < len(files) else None
            elif kind == _Message.PROGRESS and count:
                count(I64.unpack(data)[0])
            elif kind != _Message.PROGRESS:
                _ADDERS[_Message(kind)](data, reading)
        return done

    def end(self) -> int:
        """Its exit code, or minus the signal that ended it. A child that is still working is stopped."""
        self._pipe.close()  # ends the child at its next write
        os.kill(self._pid, signal.SIGCONT)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


# ---------------------------------------------------------------------------------------------------------------------
# Inside the child.


def _work(write_end: int, send: Callable[[BinaryIO], None]) -> NoReturn:
    """Exits with `os._exit`: the parent's exit handlers and stream buffers must not run in the child."""
    try:
        gc.freeze()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        _limit()
        with os.fdopen(write_end, "wb", _BUFFER) as pipe:
            send(pipe)
        os._exit(0)
    finally:
        os._exit(1)


def _limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    held = int(_read_statm().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (_within(held + MEMORY, most), most))
    for limit, value in ((resource.RLIMIT_NOFILE, OPEN_FILES), (resource.RLIMIT_CORE, 0)):
        _, most = resource.getrlimit(limit)
        resource.setrlimit(limit, (_within(value, most), most))


def _within(value: int, most: int) -> int:
    return value if most == resource.RLIM_INFINITY else min(value, most)


def _read_statm() -> str:
    with open("/proc/self/statm", encoding="ascii") as file:
        return file.read()


def _send_files(  # noqa: PLR0913 - see _Child
    files: Sequence[File],
    first: int,
    reading: Reading,
    read_one: ReadOne,
    pipe: BinaryIO,
    budget: ReadingBudget,
    *,
    counts: bool,
) -> None:
    def after_part() -> None:
        budget.room -= _send(own, pipe)
        if budget.room < 0:
            raise UnreadableInput("says more than there is room for; the rest of it is left out. Name it alone")

    reading.tables.take_fresh()
    own = Reading(tables=reading.tables, names=reading.names, after_part=after_part)
    for place in range(first, len(files)):
        before_s = _cpu_s()
        if budget.allows(place):
            _allow_cpu(budget.most_s(place))
            read_one(files[place], own, count=_ProgressSender(pipe) if counts else None)
        else:
            own.problems.append(Problem(files[place][1], NOT_READ))
        budget.room -= _send(own, pipe)
        budget.use(place, _cpu_s() - before_s)
        _put(pipe, _Message.DONE, _SPARE.pack(budget.spare_s))
        pipe.flush()


NOT_READ = "not read: other files used up the time or the room that all have together. Name it alone, or use --in-process if you trust them"


def _cpu_s() -> float:
    """Of this process and the programs that it started."""
    return sum(os.times()[:4])


class _ProgressSender:
    """Sends how much was read, from time to time."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._unsent = 0

    def __call__(self, size: int) -> None:
        self._unsent += size
        if self._unsent >= _PROGRESS_STEP:
            _put(self._pipe, _Message.PROGRESS, I64.pack(self._unsent))
            self._pipe.flush()
            self._unsent = 0


def _allow_cpu(seconds: float) -> None:
    """The timer ends this process; the limit, in whole seconds, holds for programs that it starts."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    whole = int(time.process_time() + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (_within(whole, most), most))


def _send(own: Reading, pipe: BinaryIO) -> int:
    """Sends what was read since the last call, and returns its size. The child keeps only the tables, to know what it has sent."""
    sent = 0
    if fresh := own.tables.take_fresh():
        sent += _put(pipe, _Message.TABLES, fresh)
    for record in own.records:
        sent += _put(pipe, _Message.RECORD, I64.pack(record.rank) + pack_text(record.file) + record.data)
    if len(own.records):
        own.records = RecordStore()
    for text in own.texts:
        sent += _put(pipe, _Message.TEXT, _pack(text))
    for name in own.empty:
        sent += _put(pipe, _Message.EMPTY, pack_text(name))
    for problem in own.problems:
        sent += _put(pipe, _Message.PROBLEM, pack_text(problem.file) + pack_text(problem.text))
    for broken in own.internal:
        sent += _put(pipe, _Message.INTERNAL, b"".join(map(pack_text, (broken.part, broken.error, broken.trace))))
    for kept in (own.texts, own.empty, own.problems, own.internal):
        kept.clear()
    return sent


def _put(pipe: BinaryIO, kind: _Message, data: bytes) -> int:
    pipe.write(_HEAD.pack(kind, len(data)))
    pipe.write(data)
    return len(data)


def _pack(text: object) -> bytes:
    import msgspec  # noqa: PLC0415 - for texts alone

    try:
        return msgspec.msgpack.encode(text)
    except UnicodeEncodeError:  # a file name with a byte that is not valid text
        return json.dumps(msgspec.to_builtins(text)).encode("ascii")


# ---------------------------------------------------------------------------------------------------------------------
# Inside the parent: adding what the child sent.


def _add_record(data: bytes, reading: Reading) -> None:
    sent = Reader(data)
    rank, file = sent.number(I64), sent.text()
    reading.records.append(TraceRecord(rank, file, data[sent.pos :]))


def _add_text(data: bytes, reading: Reading) -> None:
    import msgspec  # noqa: PLC0415 - for texts alone

    from forkpoint.evidence.owners import TextReading  # noqa: PLC0415 - as above

    if data.startswith(b"{"):
        reading.texts.append(msgspec.convert(json.loads(data), TextReading))
    else:
        reading.texts.append(msgspec.msgpack.decode(data, type=TextReading))


def _add_problem(data: bytes, reading: Reading) -> None:
    sent = Reader(data)
    reading.problems.append(Problem(sent.text(), sent.text()))


def _add_internal(data: bytes, reading: Reading) -> None:
    sent = Reader(data)
    reading.internal.append(InternalProblem(sent.text(), sent.text(), sent.text()))


_ADDERS: dict[_Message, Callable[[bytes, Reading], None]] = {
    _Message.TABLES: lambda data, reading: reading.tables.add_stream(data),
    _Message.RECORD: _add_record,
    _Message.TEXT: _add_text,
    _Message.EMPTY: lambda data, reading: reading.empty.append(Reader(data).text()),
    _Message.PROBLEM: _add_problem,
    _Message.INTERNAL: _add_internal,
}
