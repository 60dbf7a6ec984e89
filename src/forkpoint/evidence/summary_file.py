"""Summary files (.fps): what was read, small enough to send; about 1 kB per rank.

    magic, u32 version, pieces, a last piece of kind END that holds the digest of all before it
    a piece: u8 kind, u32 size, u32 packed size, the zlib-packed bytes

The content is sorted, so the bytes do not depend on the order of files or parts: merging is associative and commutative,
and a part that is given twice counts once. docs/summaries.md describes the layouts.
"""

import io
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from hashlib import blake2b
from itertools import groupby
from typing import BinaryIO

import msgspec
import numpy as np

from forkpoint.errors import HostileInput, InputError, UnreadableInput
from forkpoint.evidence import Progress, read_files
from forkpoint.evidence.files import SUMMARY
from forkpoint.evidence.owners import TextReading
from forkpoint.evidence.reading import Reading
from forkpoint.model.capture import Problem
from forkpoint.model.layout import I64, U32, Reader, pack_text
from forkpoint.model.records import RecordStore, TraceRecord
from forkpoint.traces.verify import DAMAGE, RecordVerifier, verify_tables

VERSION = 1
MAX_PIECE = 64 << 20
MAX_BYTES = 1 << 30
"""Unpacked size of one file: eight times what 100,000 ranks need."""
_GOOD_PIECE = 1 << 20
"""A piece ends at about this size, so that only one has to be in memory."""
_HEAD = struct.Struct("<BII")
_LEVEL = 2
"""zlib's level: takes half the time of the default 6, for 4 to 8 % more bytes."""


class _Piece(IntEnum):
    TABLES = 1
    RECORDS = 2
    TEXT = 3
    EMPTY = 4
    PROBLEM = 5
    END = 255


def summarise(paths: Sequence[str], origin: str = "", progress: Progress | None = None) -> bytes:
    """The summary of all files at these paths. `origin`: the machine that holds them, a prefix of every file's name.

    Raises UnreadableInput if none could be used.
    """
    return write_summary(read_files(paths, progress, origin))


def merge(parts: Iterable[bytes]) -> bytes:
    """One summary with the content of all of them."""
    reading = Reading()
    for number, part in enumerate(parts, 1):
        add_summary(io.BytesIO(part), f"part {number}", reading)
    return write_summary(reading)


def merge_files(paths: Sequence[str]) -> bytes:
    """Like merge, for files. Dumps and logs among them are summarised, too."""
    return write_summary(read_files(paths))


def write_summary(reading: Reading) -> bytes:
    out = io.BytesIO()
    out.write(SUMMARY + U32.pack(VERSION))
    for kind, data in _pieces(reading):
        packed = zlib.compress(data, _LEVEL)
        out.write(_HEAD.pack(kind, len(data), len(packed)))
        out.write(packed)
    seal = blake2b(out.getbuffer(), digest_size=16).digest()
    out.write(_HEAD.pack(_Piece.END, len(seal), len(seal)) + seal)
    return out.getvalue()


def _pieces(reading: Reading) -> Iterator[tuple[_Piece, bytes]]:
    yield from _joined(_Piece.TABLES, reading.tables.stream())
    yield from _joined(_Piece.RECORDS, _records(reading.records))
    texts = {(text.file, _pack_json(text)) for text in reading.texts}
    yield from ((_Piece.TEXT, data) for _, data in sorted(texts))
    yield from _joined(_Piece.EMPTY, (pack_text(name) for name in sorted(set(reading.empty))))
    problems = sorted({(problem.file, problem.text) for problem in reading.problems})
    yield from _joined(_Piece.PROBLEM, (pack_text(file) + pack_text(text) for file, text in problems))


def _joined(kind: _Piece, items: Iterable[bytes]) -> Iterator[tuple[_Piece, bytes]]:
    piece = bytearray()
    for item in items:
        piece += item
        if len(piece) >= _GOOD_PIECE:
            yield kind, bytes(piece)
            piece.clear()
    if piece:
        yield kind, bytes(piece)


def _records(store: RecordStore) -> Iterator[bytes]:
    """Sorted by rank, file and content, without repeats. Only one rank's records are in memory at a time."""
    order = np.argsort(store.ranks, kind="stable").tolist()
    for rank, same in groupby(order, key=store.ranks.__getitem__):
        for file, data in sorted({(record.file, record.data) for record in map(store.__getitem__, same)}):
            yield _pack_record(rank, file, data)


def _pack_record(rank: int, file: str, data: bytes) -> bytes:
    return I64.pack(rank) + pack_text(file) + U32.pack(len(data)) + data


def _pack_json(text: TextReading) -> bytes:
    # File names may contain bytes that are not valid text: they become question marks.
    return json.dumps(msgspec.to_builtins(text), ensure_ascii=False, sort_keys=True).encode("utf-8", "replace")


# --------------------------------------------------------------------------------------------------------- reading


def add_summary(stream: BinaryIO, name: str, reading: Reading) -> None:
    """Adds the content of a summary. A damaged one adds nothing."""
    found = Reading()
    try:
        for kind, data in _read_pieces(stream):
            _ADDERS[kind](Reader(data), found)
        verify_tables(found.tables, reading.tables)
        reading.tables.join(found.tables)  # safe even if the rest is damaged: each entry has its own key
        verifier = RecordVerifier(reading.tables)
        for record in found.records:
            verifier.verify(record)
    except InputError as error:
        raise type(error)(f"{name}: {error}") from None
    except (*DAMAGE, zlib.error, msgspec.MsgspecError) as error:
        raise UnreadableInput(f"{name}: a corrupt summary ({error}); create it again") from None
    for record in found.records:
        reading.records.append(record)
    reading.texts += found.texts
    reading.empty += found.empty
    reading.problems += found.problems


def _read_pieces(stream: BinaryIO) -> Iterator[tuple[_Piece, bytes]]:
    head = stream.read(len(SUMMARY) + U32.size)
    seal = blake2b(head, digest_size=16)
    version = U32.unpack(head[len(SUMMARY) :])[0]
    if version != VERSION:
        raise UnreadableInput(
            f"a summary of version {version}, but this forkpoint reads version {VERSION}; use the same release on both sides"
        )
    total = 0
    while True:
        head = stream.read(_HEAD.size)
        if len(head) < _HEAD.size:
            raise UnreadableInput("a truncated summary; copy it again")
        kind, size, packed_size = _HEAD.unpack(head)
        packed = stream.read(min(packed_size, MAX_PIECE))
        if kind == _Piece.END:
            if packed != seal.digest() or size != packed_size or stream.read(1):
                raise UnreadableInput("a summary damaged in transit; copy it again")
            return
        total += size
        if max(size, packed_size) > MAX_PIECE or total > MAX_BYTES:
            raise HostileInput(f"a summary of more than {total >> 20} MB; no job needs that, leave it out")
        seal.update(head)
        seal.update(packed)
        yield _Piece(kind), _unpacked(packed, size)


def _unpacked(packed: bytes, size: int) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed, size + 1)
    if len(data) != size or not unpacker.eof:
        raise UnreadableInput("a summary whose pieces do not have their stated sizes; copy it again")
    return data


def _add_tables(reader: Reader, found: Reading) -> None:
    found.tables.add_stream(reader.data)


def _add_records(reader: Reader, found: Reading) -> None:
    while reader.pos < len(reader.data):
        rank, file, size = reader.number(I64), reader.text(), reader.number(U32)
        found.records.append(TraceRecord(rank, file, reader.bytes(size)))


def _add_text(reader: Reader, found: Reading) -> None:
    found.texts.append(msgspec.json.decode(reader.data, type=TextReading))


def _add_empty(reader: Reader, found: Reading) -> None:
    while reader.pos < len(reader.data):
        found.empty.append(reader.text())


def _add_problems(reader: Reader, found: Reading) -> None:
    while reader.pos < len(reader.data):
        found.problems.append(Problem(reader.text(), reader.text()))


_ADDERS = {
    _Piece.TABLES: _add_tables,
    _Piece.RECORDS: _add_records,
    _Piece.TEXT: _add_text,
    _Piece.EMPTY: _add_empty,
    _Piece.PROBLEM: _add_problems,
}
