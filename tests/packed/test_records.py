"""Traces as bytes: what a dump holds is what its record says."""

from pathlib import Path

import pytest

from forkpoint.evidence.file_names import claim_rank
from forkpoint.model.op import Op
from forkpoint.model.records import CHANNEL, TraceRecord, parts_of
from forkpoint.model.tables import SharedTables, TableKind
from forkpoint.model.trace import ChannelTrace, GroupTrace, RankTrace, Track
from forkpoint.model.traces import Traces
from forkpoint.traces.dump import decode
from forkpoint.traces.summary import held_tracks, summarise
from forkpoint.traces.verify import DAMAGE, RecordVerifier, verify_tables
from ingest.samples import real_dumps
from looping import for_each
from small_jobs import SmallJob

DUMPS = real_dumps()
VIEWS = (RankTrace, GroupTrace, ChannelTrace, Track)


def read_all(view: object) -> None:
    """Asks a view for all that it can say."""
    names = [name for name in dir(view) if not name.startswith("_") and name not in {"tables", "shape"}]
    for value in (getattr(view, name) for name in names):
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, VIEWS):
                read_all(part)


def without_pause(op: Op) -> tuple[object, ...]:
    """What `held_tracks` says of an op, too."""
    return op.record_id, op.seq, op.batch, op.signatures, op.state, op.created_ns, op.completed_ns, op.stack, op.thread


@for_each("path", DUMPS, ids=str, one_in=10)
def test_a_record_holds_the_ops_of_its_dump(path: Path) -> None:
    tables = SharedTables()
    columns = decode(path.read_bytes(), path.name)
    rank = claim_rank(columns, path.name).rank or 0
    record = TraceRecord(rank, path.name, summarise(columns, rank, tables))

    (trace,) = Traces.of([record], tables)

    assert (trace.rank, trace.file, trace.entries) == (rank, path.name, len(columns.group))
    tracks: dict[object, Track | None] = {(g.name, g.desc, None): g.collectives for g in trace.groups}
    tracks |= {(c.group.name, c.group.desc, (c.source, c.destination)): c.messages for c in trace.channels}
    for held in held_tracks(columns, rank, newest=len(columns.group)):
        track = tracks.get((held.name, held.desc, held.channel))
        if track is None:
            assert trace.cut  # messages of a choice of entries
            continue
        ops = {op.seq: without_pause(op) for op, _ in held.ops}
        kept = [op for op in (track.last_done, track.first_active, track.last) if op]
        assert [ops[op.seq] for op in kept] == [without_pause(op) for op in kept]
        assert (track.count, track.first_seq, track.last_seq) == (len(ops), min(ops), max(ops))
        assert [track.created(seq) for seq in track.recent_seqs.tolist()] == track.recent_created_ns.tolist()
    verify_tables(tables, SharedTables())
    RecordVerifier(tables).verify(record)
    read_all(trace)


def test_declared_members_count_where_a_dump_states_none() -> None:
    job = SmallJob(4, lib="gloo", groups={"1": ("pp", (0, 1)), "2": ("tp", (0, 2))})
    for group in ("0", "1", "2"):
        job.op(group=group)
    job.send(0, 1, group="1")
    tables = SharedTables()
    traces = Traces.of([job.record(rank, tables) for rank in range(4)], tables)

    told = [("1", (0, 1)), ("2", (0, 2)), ("2", (0, 3))]
    declared = traces.declare(None, told).declare((0, 1, 2, 3), [("1", (0, 1, 2, 3))])

    assert traces[0].world is None
    assert [g.members for g in traces[0].groups] == [None, None, None]
    assert [trace.world for trace in declared] == [(0, 1, 2, 3)] * 4
    assert set(declared.heads["world"].tolist()) == {declared[0].head.world}
    assert {g.name: g.members for g in declared[0].groups} == {"0": None, "1": (0, 1), "2": None}
    assert {g.name: g.members for g in declared[2].groups} == {"0": None, "2": (0, 2)}
    assert [c.group.members for c in declared[0].channels] == [(0, 1)]
    assert declared[1:2][0].record.data != traces[1].record.data


def pipeline() -> tuple[TraceRecord, SharedTables]:
    """A rank with collectives in two groups, messages and an op that is still running."""
    job = SmallJob(4, groups={"1": ("pp", (0, 1))})
    for _ in range(3):
        job.op()
        job.op(group="1", name="all_to_all", size=[8])
        job.send(0, 1, group="1")
        job.recv(1, 0, group="1")
    job.op(done=False)
    tables = SharedTables()
    return job.record(0, tables), tables


def test_a_record_that_ends_early_or_goes_on_is_refused() -> None:
    record, tables = pipeline()
    verifier = RecordVerifier(tables)

    for end in range(len(record.data)):
        with pytest.raises(DAMAGE):
            verifier.verify(TraceRecord(0, "cut", record.data[:end]))
    with pytest.raises(DAMAGE):
        verifier.verify(TraceRecord(0, "long", record.data + b"\0"))


def test_whatever_byte_of_a_record_is_changed_it_is_refused_or_can_be_read() -> None:
    record, tables = pipeline()
    verifier = RecordVerifier(tables)
    refused = 0
    for at in range(len(record.data)):
        for change in (0x01, 0x80, 0xFF):
            data = record.data[:at] + bytes([record.data[at] ^ change]) + record.data[at + 1 :]
            changed = TraceRecord(0, "changed", data)
            try:
                verifier.verify(changed)
            except DAMAGE:
                refused += 1
            else:
                read_all(Traces.of([changed], tables)[0])

    assert refused > len(record.data) // 2


def _with_receiver(rank: int) -> tuple[TraceRecord, SharedTables]:
    """A record whose first channel ends at this rank."""
    record, tables = pipeline()
    at, channel = parts_of(record.data).channels[0]
    changed = CHANNEL.pack(channel._replace(destination=rank))
    return TraceRecord(0, "changed", record.data[: at - CHANNEL.size] + changed + record.data[at:]), tables


@for_each("rank", [1 << 40, 1 << 31, -1])
def test_a_channel_to_a_rank_that_cannot_be_is_refused(rank: int) -> None:
    record, tables = _with_receiver(rank)

    with pytest.raises(ValueError, match="impossible ranks"):
        RecordVerifier(tables).verify(record)


def test_a_channel_to_the_last_rank_that_can_be_is_not_refused() -> None:
    record, tables = _with_receiver((1 << 31) - 1)

    RecordVerifier(tables).verify(record)


@for_each("kind", list(TableKind))
def test_an_entry_under_another_key_is_refused(kind: TableKind) -> None:
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
            job.record(0, tables)
        kept.append(b"".join(tables.stream()))

    assert kept[0] == kept[1]
