"""Messages from the child that reads files to its parent, each preceded by its kind and size."""

import json
import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import TYPE_CHECKING

from forkpoint.model.capture import InternalProblem, Problem
from forkpoint.model.layout import Reader, pack_text
from forkpoint.model.records import RecordStore, TraceRecord

if TYPE_CHECKING:
    from forkpoint.evidence.reading import Reading

MESSAGE_HEAD = struct.Struct("<BQ")
_RECORD = struct.Struct("<qI")
"""Rank and size of the name; the name and the record follow."""


class MessageKind(IntEnum):
    """What a message from the child holds."""

    DONE = 0
    TABLES = 1
    RECORD = 2
    TEXT = 3
    EMPTY = 4
    PROBLEM = 5
    INTERNAL = 6
    PROGRESS = 7
    SPARE = 8


def messages(own: "Reading") -> Iterator[bytes]:
    if fresh := own.tables.take_fresh():
        yield message(MessageKind.TABLES, fresh)
    assert isinstance(own.records, Unsent)  # created in _send_files
    if records := own.records.kept:
        for record in records:
            name = record.file.encode("utf-8", "surrogatepass")
            head = MESSAGE_HEAD.pack(MessageKind.RECORD, _RECORD.size + len(name) + len(record.data))
            yield b"".join((head, _RECORD.pack(record.rank, len(name)), name, record.data))
        records.clear()
    if own.texts or own.empty or own.problems or own.internal:
        yield from _rarer_messages(own)


def _rarer_messages(own: "Reading") -> Iterator[bytes]:
    for text in own.texts:
        yield message(MessageKind.TEXT, _pack(text))
    for name in own.empty:
        yield message(MessageKind.EMPTY, pack_text(name))
    for problem in own.problems:
        yield message(MessageKind.PROBLEM, pack_text(problem.file) + pack_text(problem.text))
    for broken in own.internal:
        yield message(MessageKind.INTERNAL, b"".join(map(pack_text, (broken.part, broken.error, broken.trace))))
    for kept in (own.texts, own.empty, own.problems, own.internal):
        kept.clear()


def message(kind: MessageKind, data: bytes) -> bytes:
    return MESSAGE_HEAD.pack(kind, len(data)) + data


DONE = message(MessageKind.DONE, b"")


class Unsent(RecordStore):
    """Records until they are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[TraceRecord] = []

    def append(self, record: TraceRecord) -> None:
        self.kept.append(record)


def _pack(text: object) -> bytes:
    import msgspec  # noqa: PLC0415 - for texts alone

    try:
        return msgspec.msgpack.encode(text)
    except UnicodeEncodeError:  # a file name with a byte that is not valid text
        return json.dumps(msgspec.to_builtins(text)).encode("ascii")


# ---------------------------------------------------------------------------------------------------------------------
# Inside the parent: adding what the child sent.


def _add_record(data: bytes, reading: "Reading") -> None:
    rank, size = _RECORD.unpack_from(data)
    begin = _RECORD.size + size
    name = data[_RECORD.size : begin].decode("utf-8", "surrogatepass")
    reading.records.append(TraceRecord(rank, name, data[begin:]))


def _add_text(data: bytes, reading: "Reading") -> None:
    import msgspec  # noqa: PLC0415 - for texts alone

    from forkpoint.evidence.owners import TextReading  # noqa: PLC0415 - as above

    if data.startswith(b"{"):
        reading.texts.append(msgspec.convert(json.loads(data), TextReading))
    else:
        reading.texts.append(msgspec.msgpack.decode(data, type=TextReading))


def _add_problem(data: bytes, reading: "Reading") -> None:
    sent = Reader(data)
    reading.problems.append(Problem(sent.text(), sent.text()))


def _add_internal(data: bytes, reading: "Reading") -> None:
    sent = Reader(data)
    reading.internal.append(InternalProblem(sent.text(), sent.text(), sent.text()))


ADDERS: "dict[int, Callable[[bytes, Reading], None]]" = {
    MessageKind.TABLES: lambda data, reading: reading.tables.add_stream(data),
    MessageKind.RECORD: _add_record,
    MessageKind.TEXT: _add_text,
    MessageKind.EMPTY: lambda data, reading: reading.empty.append(Reader(data).text()),
    MessageKind.PROBLEM: _add_problem,
    MessageKind.INTERNAL: _add_internal,
}
