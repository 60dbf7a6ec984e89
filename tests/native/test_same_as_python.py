"""The compiled reader declines a file, or says byte for byte what the Python reader says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.generate import encode_dump
from bench.job import Job
from forkpoint.model.tables import TableKind
from forkpoint.traces.native import NativePacker
from ingest.encode import encode
from ingest.samples import CASES, T0, dump, entry
from looping import one_in
from native.compare import Pair
from native.fuzz import fuzz_in_child
from native.samples import whole_dump


@one_in(3)
def test_every_recorded_dump_of_todays_schema_is_taken_and_read_the_same(pair: Pair, share: int):
    files = [data for path in sorted(CASES.glob("*/capture/*")) if (data := path.read_bytes()).startswith(b"\x80\x02")]

    assert len(files) > 500
    assert [pair.assert_same(data) for data in files[::share]].count(False) == 0
    pair.assert_same_tables()


@given(seed=st.integers(0, 1 << 32), count=st.integers(0, 120), lib=st.sampled_from(["nccl", "gloo"]))
def test_generated_dumps_are_taken_and_read_the_same(pair: Pair, seed: int, count: int, lib: str):
    assert pair.assert_same(encode(whole_dump(seed, count, lib=lib)))
    pair.assert_same_tables()


def test_a_full_buffer_of_a_large_job_is_taken_and_read_the_same(pair: Pair):
    job = Job(64, 2000)

    for rank in (0, 1, job.leaver):
        assert pair.assert_same(bytes(encode_dump(job, rank)[0].out))
    pair.assert_same_tables()


def test_numbers_that_become_wider_from_entry_to_entry_are_read_the_same(pair: Pair):
    numbers = [0, 1, 255, 256, 65_535, 65_536, (1 << 31) - 1, 1 << 31, 1 << 40, 3, 4]
    made = [
        entry(3 * i, collective_seq_id=i + 1, time_discovered_completed_ns=number, op_id=number, timeout_ms=600_000)
        for i, number in enumerate(numbers * 6)
    ]

    assert pair.assert_same(encode(dump(made)))
    pair.assert_same_tables()


def test_messages_in_a_dump_of_the_active_ops_alone_are_left_to_python(pair: Pair):
    sends = [
        entry(number, profiling_name="nccl:send 0->1", is_p2p=True, p2p_seq_id=number, collective_seq_id=2)
        for number in (3, 9, 12)
    ]

    assert not pair.assert_same(encode(dump([entry(0), entry(1), *sends])))


def test_groups_that_were_made_again_are_read_the_same(pair: Pair):
    tp = {"process_group": ("17", "mesh_tp")}
    first = [entry(0), entry(1, pg_id=1, **tp, collective_seq_id=1)]
    second = [entry(2, pg_id=2, collective_seq_id=1), entry(3, pg_id=3, **tp, collective_seq_id=1)]

    assert pair.assert_same(encode(dump([*first, *second])))
    assert pair.packer.decode(encode(dump([*first, *second]))).entries == 2


def test_a_dump_that_states_its_rank_is_read_the_same(pair: Pair):
    data = encode(dump([entry(0)], rank=3))

    assert pair.assert_same(data)
    assert pair.packer.decode(data).stated == 3


LISTS = {
    "a world": list(range(100_003)),
    "steps": list(range(5, 9_000, 8)),
    "down": list(range(1_200, -1, -1)),
    "one": [7],
    "one twice": [7, 7],
    "more digits than six": list(range(999_990, 1_000_010)),
    "one is missing": [rank for rank in range(3_000) if rank != 1_234],
    "the last is apart": [*range(600), 700],
}


@pytest.mark.parametrize("space", [", ", ",", ",  "])
@pytest.mark.parametrize("ranks", LISTS.values(), ids=LISTS)
def test_lists_of_ranks_are_read_the_same(pair: Pair, ranks: list[int], space: str):
    group = {"name": "0", "desc": "default_pg", "ranks": f"[{space.join(map(str, ranks))}]"}

    for _ in range(2):
        assert pair.assert_same(encode(dump([entry(0)], pg_config={"0": group})))
    assert [pair.native.members(key) for key in pair.native.entries(TableKind.MEMBERS)] == [tuple(ranks)]
    pair.assert_same_tables()


def test_long_texts_that_differ_in_one_byte_are_told_apart(pair: Pair):
    names = ["x" * at + "y" + "x" * (700 - at) for at in range(0, 700, 7)]

    for name in [*names, *names]:
        assert pair.assert_same(encode(dump([entry(i, thread_name=name) for i in range(2)])))
    pair.assert_same_tables()
    assert set(names) <= {text.decode() for text in pair.native.entries(TableKind.TEXT).values()}


def test_a_dump_in_memory_that_can_be_written_to_is_read_the_same(packer: NativePacker):
    data = encode(whole_dump(3, 60))
    memory = memoryview(bytearray(b"\xff" * 9 + data + b"\xff" * 9))

    from_bytes = packer.decode(data)
    assert from_bytes is not None
    assert packer.decode(memory[9:-9]) == from_bytes
    assert packer.decode(memory[9:-8]) is None
    assert packer.decode(memory[9:9]) is None


def test_fields_that_nobody_knows_are_skipped(pair: Pair):
    splits = {"splits": [[1, 2], []], "note": {"a": "b"}, "duration_ms": 0.5, "nothing": None}
    made = [entry(i, **splits) for i in range(40)]

    assert pair.assert_same(encode(dump(made, nccl_comm_state={"x": {"y": "1"}})))
    pair.assert_same_tables()


VALUES = st.fixed_dictionaries(
    {},
    optional={
        "record_id": st.integers(-(1 << 63), (1 << 63) - 1) | st.none(),
        "p2p_seq_id": st.integers(-3, 3),
        "time_created_ns": st.integers(T0, T0 + 10**12) | st.integers(-(1 << 63), (1 << 63) - 1),
        "time_discovered_started_ns": st.none() | st.integers(-1, 5),
        "time_discovered_completed_ns": st.none() | st.integers(T0, T0 + 10**12) | st.integers(-(1 << 63), (1 << 63) - 1),
        "timeout_ms": st.integers(-1, 1 << 62),
        "profiling_name": st.sampled_from(["nccl:send 0->1", "nccl:recv 0<-1", "nccl:coalesced", "x", "a:b:c", "é:send 1->2"])
        | st.text(max_size=5),
        "process_group": st.tuples(st.sampled_from(["0", "1", ""]), st.text(max_size=2)),
        "thread_name": st.text(max_size=3),
        "state": st.sampled_from(["scheduled", "started", "completed", "?"]),
        "retired": st.booleans(),
        "is_p2p": st.booleans(),
        "input_sizes": st.lists(st.lists(st.integers(0, 1 << 40), max_size=3), max_size=3),
        "input_dtypes": st.lists(st.sampled_from(["Float", "Half"]), max_size=2),
    },
)  # fmt: skip


@given(st.lists(VALUES, max_size=10))
def test_entries_with_any_values_are_declined_or_read_the_same(pair: Pair, changes: list[dict[str, object]]):
    made = [entry(i, **change) for i, change in enumerate(changes * 2)]

    pair.assert_same(encode(dump(made)))


@pytest.mark.usefixtures("packer")
def test_mutated_dumps_are_declined_or_read_the_same_and_never_harm():
    result = fuzz_in_child(count=300, seed=5)

    assert result["mutations"] == 300
    assert result["taken"] > 30
