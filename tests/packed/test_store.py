"""Records of a large job lie in a file; what comes out is what went in."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forkpoint.model import records as store
from forkpoint.model.records import HEAD, RecordStore, TraceRecord


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "IN_MEMORY", 1000)


def records() -> Iterator[TraceRecord]:
    for rank in range(40, 0, -1):
        yield TraceRecord(rank, f"/dumps/nccl_trace_rank_{rank}", bytes([rank]) * (HEAD.size + 7 * rank))


def filled() -> RecordStore:
    kept = RecordStore()
    for record in records():
        kept.append(record)
    return kept


def told(kept: RecordStore) -> list[TraceRecord]:
    return [*kept]


def test_records_beyond_what_memory_may_hold_are_read_back_from_a_file(tmp_path: Path) -> None:
    kept = filled()

    assert told(kept) == list(records())
    assert kept[1].rank == 39
    assert kept.heads == [record.data[: HEAD.size] for record in kept]
    assert len(kept._in_memory) <= 1000


def test_a_file_that_grows_between_two_looks_changes_nothing_before_it() -> None:
    kept = filled()
    first = told(kept)

    kept.append(TraceRecord(99, "late", b"x" * 2000))

    assert told(kept) == [*first, TraceRecord(99, "late", b"x" * 2000)]


def test_where_no_file_can_be_made_records_stay_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))

    assert told(filled()) == list(records())


def test_where_the_disk_is_full_records_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def on_a_full_disk(**_: Any) -> Any:
        return Path("/dev/full").open("r+b", buffering=0)

    monkeypatch.setattr(tempfile, "TemporaryFile", on_a_full_disk)

    assert told(filled()) == list(records())


def test_a_name_that_is_no_text_comes_back_as_it_was() -> None:
    kept = RecordStore()
    kept.append(TraceRecord(3, "dump_\udcff", b"\0" * HEAD.size))

    assert kept[0].file == "dump_\udcff"
