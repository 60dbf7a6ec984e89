"""The guard's own reader must find what the engine's reader finds, and nothing where it cannot be sure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.guard.calls import Recent, RecentReader
from forkpoint.model.op import match_token
from forkpoint.traces.dump import decode
from ingest.encode import encode
from small_jobs import SmallJob

pytestmark = pytest.mark.torch


def dump_of(job: SmallJob, rank: int, held: int = 2000, first_record: int = 0) -> bytes:
    """Without stacks, as the guard asks for it."""
    entries = [{k: v for k, v in e.items() if k != "frames"} for e in job.entries[rank]]
    for number, entry in enumerate(entries):
        entry["record_id"] = first_record + number
    status = {"0": {"last_enqueued_collective": 1, "last_started_collective": -1, "last_completed_collective": 1}}
    return encode({"version": "2.10", "pg_config": {}, "pg_status": status, "entries": entries[-held:]})


def by_engine(data: bytes) -> list[tuple[int, str, int, int]]:
    columns = decode(data, "dump")
    return [
        (int(record), columns.groups[g][0], int(seq), match_token(columns.signatures[s]))
        for record, g, seq, s, p2p in zip(
            columns.record_id, columns.group, columns.collective_seq, columns.signature, columns.is_p2p, strict=True
        )
        if not p2p
    ]


def by_guard(recent: Recent) -> list[tuple[int, str, int, int]]:
    return [(c.record_id, c.group, c.seq, c.token) for c in recent.calls]


@st.composite
def jobs(draw: st.DrawFn) -> SmallJob:
    job = SmallJob(2, lib=draw(st.sampled_from(["nccl", "gloo"])), groups={"7": ("tp", (0, 1))})
    for _ in range(draw(st.integers(0, 30))):
        kind = draw(st.sampled_from(["op", "other", "send"]))
        if kind == "send":
            job.send(0, 1)
        else:
            name = draw(st.sampled_from(["all_reduce", "all_gather", "broadcast"]))
            size = draw(st.one_of(st.integers(0, 2**40), st.lists(st.integers(0, 300), max_size=3)))
            job.op(name=name, size=size, group="0" if kind == "op" else "7")
    return job


@given(jobs(), st.integers(0, 2**33), st.integers(1, 40))
def test_it_finds_the_calls_that_the_engine_finds(job, first_record, held) -> None:
    data = dump_of(job, 0, held, first_record)
    whole = RecentReader().read(data, first_record - 1)
    assert by_guard(whole) == by_engine(data)
    assert whole.complete == (held >= len(job.entries[0]))


@given(jobs(), st.integers(-1, 30))
def test_only_what_came_after_the_last_look_is_read(job, after) -> None:
    data = dump_of(job, 0)
    recent = RecentReader().read(data, after)
    assert by_guard(recent) == [call for call in by_engine(data) if call[0] > after]
    assert recent.complete


@given(jobs(), st.data())
def test_a_damaged_byte_never_makes_it_raise(job, data) -> None:
    dump = bytearray(dump_of(job, 0))
    dump[data.draw(st.integers(0, len(dump) - 1))] = data.draw(st.integers(0, 255))
    RecentReader().read(bytes(dump), -1)


def test_bytes_that_are_no_dump_hold_no_calls() -> None:
    for data in (b"", b"}(X\x09\x00\x00\x00record_idq\x00", b"x" * 100):
        assert not RecentReader().read(data, -1).calls


def test_what_left_the_ring_buffer_before_it_was_read_is_known_to_be_missing() -> None:
    job = SmallJob(1)
    for _ in range(20):
        job.op()
    assert not RecentReader().read(dump_of(job, 0, held=5), 3).complete
    assert RecentReader().read(dump_of(job, 0, held=5), 14).complete
