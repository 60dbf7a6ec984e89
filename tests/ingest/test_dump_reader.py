"""Dumps that are read one after another into the same memory."""

import io

import pytest

from forkpoint.errors import HostileInput
from forkpoint.evidence.file_names import FileNames
from forkpoint.evidence.reading import DumpReader
from forkpoint.model.tables import SharedTables, TableKind
from forkpoint.traces import dump as flight_recorder
from ingest.encode import encode
from ingest.samples import dump, entry

LONG, SHORT = (encode(dump([entry(i) for i in range(count)])) for count in (400, 3))
NAME = "nccl_trace_rank_1"


class Trickle(io.RawIOBase):
    """Gives a few bytes at a time, as a pipe may, and has no size."""

    def __init__(self, data: bytes) -> None:
        self._left = data

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        piece, self._left = self._left[: min(1000, len(buffer))], self._left[min(1000, len(buffer)) :]
        buffer[: len(piece)] = piece
        return len(piece)


@pytest.fixture(params=["compiled", "Python"])
def tables(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SharedTables:
    if request.param == "Python":
        monkeypatch.setenv("FORKPOINT_NATIVE", "0")
    return SharedTables()


def test_a_dump_says_the_same_from_a_stream(tables: SharedTables):
    expected = DumpReader(SharedTables(), FileNames()).read(NAME, LONG)

    assert expected[0].rank == 1
    assert DumpReader(tables, FileNames()).read(NAME, io.BytesIO(LONG)) == expected
    assert DumpReader(tables, FileNames()).read(NAME, io.BufferedReader(Trickle(LONG), 512)) == expected


def test_nothing_of_a_longer_dump_is_left_in_the_next(tables: SharedTables):
    reader, expected = DumpReader(tables, FileNames()), DumpReader(SharedTables(), FileNames()).read(NAME, SHORT)

    reader.read(NAME, io.BytesIO(LONG))
    assert reader.read(NAME, io.BytesIO(SHORT)) == expected


def test_what_was_read_stays_when_the_next_is_read(tables: SharedTables):
    reader = DumpReader(tables, FileNames())

    claim, record = reader.read(NAME, io.BytesIO(LONG))
    kept = {kind: dict(tables.entries(kind)) for kind in TableKind}
    reader.read(NAME, io.BytesIO(SHORT.replace(b"train.py", b"other.py")))
    assert (claim, record) == DumpReader(SharedTables(), FileNames()).read(NAME, LONG)
    assert all(tables.entries(kind).items() >= kept[kind].items() for kind in TableKind)


def test_a_stream_that_holds_more_than_a_dump_may_is_refused(tables: SharedTables, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flight_recorder, "MAX_BYTES", len(SHORT))
    reader = DumpReader(tables, FileNames())

    assert reader.read(NAME, io.BytesIO(SHORT))[0].rank == 1
    with pytest.raises(HostileInput, match=f"{NAME}: has {len(SHORT) + 1} bytes; the limit for a dump is {len(SHORT)}"):
        reader.read(NAME, io.BytesIO(LONG))


@pytest.mark.parametrize(("ranks", "is_member"), [("[0, 1, 2]", True), ("[0, 1, 3]", True), ("[0, 2, 4]", False)])
def test_the_members_of_a_group_are_asked_in_every_dump(tables: SharedTables, ranks: str, is_member: bool):
    data = encode(dump([entry(0)], pg_config={"0": {"name": "0", "desc": "default_pg", "ranks": ranks}}))
    reader = DumpReader(tables, FileNames())

    assert [reader.read(NAME, data)[0].rank for _ in range(2)] == [1 if is_member else None] * 2
