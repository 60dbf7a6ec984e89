"""Traces as bytes: what was read is what is unpacked."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from forkpoint.ingest.flight_recorder import decode
from forkpoint.ingest.flight_recorder.summary import summarise
from forkpoint.ingest.naming import claim_rank
from forkpoint.packed.records import pack
from forkpoint.packed.tables import Kind, SharedTables
from forkpoint.packed.trace import PackedRecord, PackedTrace
from forkpoint.packed.unpack import unpack
from forkpoint.packed.verify import DAMAGE, RecordVerifier, verify_tables
from ingest.samples import real_dumps
from looping import for_each
from small_jobs import SmallJob

DUMPS = real_dumps()


def same(one: object, other: object) -> bool:
    """Equal in every field, arrays and nested values included."""
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if hasattr(one, "__dataclass_fields__") and type(one) is type(other):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))
    return one == other


@for_each("path", DUMPS, ids=str)
def test_what_was_read_of_a_real_dump_is_unpacked(path: Path) -> None:
    tables = SharedTables()
    columns = decode(path.read_bytes(), path.name)
    trace = summarise(columns, claim_rank(columns, path.name).rank or 0, path.name, tables)

    record = PackedRecord(trace.rank, path.name, pack(trace, tables))

    assert same(unpack(PackedTrace(record, tables)), trace)
    verify_tables(tables, SharedTables())
    RecordVerifier(tables).verify(record)


def pipeline() -> tuple[PackedRecord, SharedTables]:
    """A rank with collectives in two groups, messages and an op that is still running."""
    job = SmallJob(4, groups={"1": ("pp", (0, 1))})
    for _ in range(3):
        job.op()
        job.op(group="1", name="all_to_all", size=[8])
        job.send(0, 1, group="1")
        job.recv(1, 0, group="1")
    job.op(done=False)
    tables = SharedTables()
    return PackedRecord(0, "rank_0", pack(job.trace(0, tables), tables)), tables


def test_a_record_that_ends_early_or_goes_on_is_refused() -> None:
    record, tables = pipeline()
    verifier = RecordVerifier(tables)

    for end in range(len(record.data)):
        with pytest.raises(DAMAGE):
            verifier.verify(PackedRecord(0, "cut", record.data[:end]))
    with pytest.raises(DAMAGE):
        verifier.verify(PackedRecord(0, "long", record.data + b"\0"))


def test_whatever_byte_of_a_record_is_changed_it_is_refused_or_can_be_unpacked() -> None:
    record, tables = pipeline()
    verifier = RecordVerifier(tables)
    refused = 0
    for at in range(len(record.data)):
        for change in (0x01, 0x80, 0xFF):
            data = record.data[:at] + bytes([record.data[at] ^ change]) + record.data[at + 1 :]
            changed = PackedRecord(0, "changed", data)
            try:
                verifier.verify(changed)
            except DAMAGE:
                refused += 1
            else:
                unpack(PackedTrace(changed, tables))

    assert refused > len(record.data) // 2


@for_each("kind", list(Kind))
def test_an_entry_under_another_key_is_refused(kind: Kind) -> None:
    _, tables = pipeline()
    packed = next(iter(tables.entries(kind).values()))
    tables.add(kind, 12345, packed)

    with pytest.raises(DAMAGE):
        verify_tables(tables, SharedTables())


def test_of_two_examples_of_a_call_the_same_is_kept_whoever_comes_first() -> None:
    large, small = SmallJob(2), SmallJob(2)
    large.op(name="all_to_all", size=[100])
    small.op(name="all_to_all", size=[3])
    kept = []
    for jobs in ((large, small), (small, large)):
        tables = SharedTables()
        for job in jobs:
            job.trace(0, tables)
        kept.append(b"".join(tables.stream()))

    assert kept[0] == kept[1]
