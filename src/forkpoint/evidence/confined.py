"""Files are read by a child process with limits: what ends it costs the file that it was reading, and nothing else.

The child is a fork, so that it knows all that was imported and needs no second start. It goes through the files in their
order and tells what each says, as packed records and table entries, over a pipe; where it dies, another goes on behind
that file. A process with several threads cannot fork safely and reads by itself, as `--in-process` does.
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

from forkpoint.evidence.reading import Reading
from forkpoint.model.capture import InternalProblem, Problem
from forkpoint.model.layout import I64, Reader, pack_text
from forkpoint.model.records import Record, RecordStore

MEMORY = 768 << 20
"""Bytes that a child may take beyond what it was born with."""
OPEN_FILES = 256
CPU_S = 15
"""For a file; beyond `_LARGE` bytes it has a second more for each `_PER_SECOND`."""
_LARGE, _PER_SECOND = 64 << 20, 1 << 20
_HEAD = struct.Struct("<BQ")
_BUFFER = 1 << 18
_WORTH_TELLING = 1 << 20
"""Bytes read, for who shows progress."""


class _Kind(IntEnum):
    DONE = 0
    TABLES = 1
    RECORD = 2
    TEXT = 3
    EMPTY = 4
    PROBLEM = 5
    INTERNAL = 6
    PROGRESS = 7


File = tuple[str, str]
"""Its path, and its name in reports."""
Count = Callable[[int], None]
"""Called with the bytes of a file as they are read."""
Begin = Callable[[str], Count]
"""Called with the path of a file before it is read."""


class ReadOne(Protocol):
    def __call__(self, file: File, reading: Reading, *, count: Count | None) -> None:
        """Adds what a file says, and what is wrong with it."""


def can_confine() -> bool:
    return threading.active_count() == 1


def read_confined(files: Sequence[File], reading: Reading, read_one: ReadOne, begin: Begin | None) -> None:
    """Adds what the files say. `begin`: somebody wants to know how far it is."""
    done = 0
    while done < len(files):
        child = _Child(files[done:], reading, read_one, counts=begin is not None)
        try:
            done += child.take(files[done:], reading, begin)
        finally:
            ended = child.end()
        if done < len(files):
            reading.problems.append(Problem(files[done][1], _why(ended)))
            done += 1


def _why(status: int) -> str:
    """What ended a child, for the file that it was reading."""
    by = -status
    if by == signal.SIGXCPU:
        return f"took more than {CPU_S} s to read; what was not read yet is left out. Give --in-process if you trust it"
    told = f"signal {signal.Signals(by).name}" if by in set(signal.Signals) else f"exit code {status}"
    return f"ended the process that read it ({told}); left out. Ask where it came from before you open it otherwise"


class _Child:
    def __init__(self, files: Sequence[File], reading: Reading, read_one: ReadOne, *, counts: bool) -> None:
        told, tells = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(told)
            _work(tells, lambda pipe: _tell_files(files, reading, read_one, pipe, counts=counts))
        os.close(tells)
        self._pipe = os.fdopen(told, "rb", _BUFFER)

    def take(self, files: Sequence[File], reading: Reading, begin: Begin | None) -> int:
        """Adds what the child tells, up to where it ends; how many files are done then."""
        done = 0
        count = begin(files[0][0]) if begin else None
        while len(head := self._pipe.read(_HEAD.size)) == _HEAD.size:
            kind, size = _HEAD.unpack(head)
            data = self._pipe.read(size)
            if len(data) < size:
                break
            if kind == _Kind.DONE:
                done += 1
                count = begin(files[done][0]) if begin and done < len(files) else None
            elif kind == _Kind.PROGRESS and count:
                count(I64.unpack(data)[0])
            elif kind != _Kind.PROGRESS:
                _ADDERS[_Kind(kind)](data, reading)
        return done

    def end(self) -> int:
        """Its exit code, or minus the signal that ended it. A child that still works is not waited for."""
        self._pipe.close()  # it ends at its next word
        os.kill(self._pid, signal.SIGCONT)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])


# ---------------------------------------------------------------------------------------------------------------------
# Inside the child.


def _work(tells: int, tell: Callable[[BinaryIO], None]) -> NoReturn:
    """Nothing of the process that forked it may run at its end: neither handlers nor buffers of its streams."""
    try:
        gc.freeze()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        _limit()
        with os.fdopen(tells, "wb", _BUFFER) as pipe:
            tell(pipe)
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


def _tell_files(files: Sequence[File], reading: Reading, read_one: ReadOne, pipe: BinaryIO, *, counts: bool) -> None:
    reading.tables.take_fresh()
    own = Reading(tables=reading.tables, names=reading.names, after_part=lambda: _tell(own, pipe))
    for file in files:
        _allow_cpu(file[0])
        read_one(file, own, count=_Counter(pipe) if counts else None)
        _tell(own, pipe)
        _put(pipe, _Kind.DONE, b"")
        pipe.flush()


class _Counter:
    """Tells how much was read, now and then."""

    def __init__(self, pipe: BinaryIO) -> None:
        self._pipe = pipe
        self._untold = 0

    def __call__(self, size: int) -> None:
        self._untold += size
        if self._untold >= _WORTH_TELLING:
            _put(self._pipe, _Kind.PROGRESS, I64.pack(self._untold))
            self._pipe.flush()
            self._untold = 0


def _allow_cpu(path: str) -> None:
    try:
        size = os.stat(path).st_size
    except OSError:  # an address, standard input
        size = 0
    seconds = int(time.process_time()) + 1 + CPU_S + max(0, size - _LARGE) // _PER_SECOND
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (_within(seconds, most), most))


def _tell(own: Reading, pipe: BinaryIO) -> None:
    """What was read since the last time; the child keeps none of it but the tables, to know what it has told."""
    if fresh := own.tables.take_fresh():
        _put(pipe, _Kind.TABLES, fresh)
    for record in own.records:
        _put(pipe, _Kind.RECORD, I64.pack(record.rank) + pack_text(record.file) + record.data)
    if len(own.records):
        own.records = RecordStore()
    for text in own.texts:
        _put(pipe, _Kind.TEXT, _pack(text))
    for name in own.empty:
        _put(pipe, _Kind.EMPTY, pack_text(name))
    for problem in own.problems:
        _put(pipe, _Kind.PROBLEM, pack_text(problem.file) + pack_text(problem.text))
    for broken in own.internal:
        _put(pipe, _Kind.INTERNAL, b"".join(map(pack_text, (broken.part, broken.error, broken.trace))))
    for told in (own.texts, own.empty, own.problems, own.internal):
        told.clear()


def _put(pipe: BinaryIO, kind: _Kind, data: bytes) -> None:
    pipe.write(_HEAD.pack(kind, len(data)))
    pipe.write(data)


def _pack(text: object) -> bytes:
    import msgspec  # noqa: PLC0415 - for texts alone

    try:
        return msgspec.msgpack.encode(text)
    except UnicodeEncodeError:  # a byte of a file's name that is no text
        return json.dumps(msgspec.to_builtins(text)).encode("ascii")


# ---------------------------------------------------------------------------------------------------------------------
# What it told, added to what the parent has.


def _add_record(data: bytes, reading: Reading) -> None:
    told = Reader(data)
    rank, file = told.number(I64), told.text()
    reading.records.append(Record(rank, file, data[told.pos :]))


def _add_text(data: bytes, reading: Reading) -> None:
    import msgspec  # noqa: PLC0415 - for texts alone

    from forkpoint.evidence.text_files import TextReading  # noqa: PLC0415 - as above

    if data.startswith(b"{"):
        reading.texts.append(msgspec.convert(json.loads(data), TextReading))
    else:
        reading.texts.append(msgspec.msgpack.decode(data, type=TextReading))


def _add_problem(data: bytes, reading: Reading) -> None:
    told = Reader(data)
    reading.problems.append(Problem(told.text(), told.text()))


def _add_internal(data: bytes, reading: Reading) -> None:
    told = Reader(data)
    reading.internal.append(InternalProblem(told.text(), told.text(), told.text()))


_ADDERS: dict[_Kind, Callable[[bytes, Reading], None]] = {
    _Kind.TABLES: lambda data, reading: reading.tables.add_stream(data),
    _Kind.RECORD: _add_record,
    _Kind.TEXT: _add_text,
    _Kind.EMPTY: lambda data, reading: reading.empty.append(Reader(data).text()),
    _Kind.PROBLEM: _add_problem,
    _Kind.INTERNAL: _add_internal,
}
