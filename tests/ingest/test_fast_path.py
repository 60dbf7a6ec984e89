"""Layouts are only faster: whatever the bytes, they give what the machine alone gives."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forkpoint.errors import HostileInput
from forkpoint.traces import entries, fast
from forkpoint.traces.dump import read_pickle
from ingest.compare import both_ways
from ingest.encode import encode
from ingest.fuzz import MUTATIONS
from ingest.samples import MAIN, dump, entry, real_dumps, varied_dump
from looping import for_each


def assert_same(data: bytes) -> None:
    with_layouts, machine_alone = both_ways(data)
    assert with_layouts == machine_alone


def added_by_machine(data: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many entries the fast path leaves to the machine."""
    count = 0
    add = entries.EntryReader.add

    def counting(self: entries.EntryReader, value: object) -> None:
        nonlocal count
        count += 1
        add(self, value)

    monkeypatch.setattr(entries.EntryReader, "add", counting)
    read_pickle(data, fast=True)
    return count


def test_entries_that_bring_nothing_new_do_not_reach_the_machine(monkeypatch: pytest.MonkeyPatch):
    data = encode(dump([entry(i) for i in range(500)]))

    assert added_by_machine(data, monkeypatch) < 10


def test_a_field_that_only_some_entries_have_costs_one_layout_more(monkeypatch: pytest.MonkeyPatch):
    timed = [entry(i, duration_ms=0.5) for i in range(200)]
    data = encode(dump(timed + [entry(i) for i in range(200, 400)]))

    assert added_by_machine(data, monkeypatch) < 10


@for_each("path", real_dumps(), ids=lambda path: "/".join(path.parts[-3:]), one_in=3)
def test_real_dumps_are_read_the_same(path):
    assert_same(path.read_bytes())


@given(seed=st.integers(0, 1 << 32), count=st.integers(1, 60))
def test_generated_dumps_are_read_the_same(seed: int, count: int):
    assert_same(encode(varied_dump(seed, count)))


@given(seed=st.integers(0, 1 << 32), mutations=st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=4))
def test_mutated_dumps_are_read_the_same(seed: int, mutations):
    chance = random.Random(seed)
    data = bytearray(MUTATED)
    for mutate in mutations:
        mutate(chance, data)
    assert_same(bytes(data))


MUTATED = encode(varied_dump(9, 40))

CALLS = st.fixed_dictionaries(
    {},
    optional={
        "frames": st.sampled_from([[], [MAIN], [MAIN, MAIN], None, ["main"], 5]),
        "record_id": st.integers(-(1 << 65), 1 << 65) | st.none() | st.booleans() | st.text(),
        "pg_id": st.integers(-3, 70_000),
        "process_group": st.tuples(st.text(), st.text()) | st.none(),
        "profiling_name": st.text() | st.sampled_from(["nccl:send 3->4", "gloo:barrier"]) | st.integers(),
        "time_created_ns": st.integers(-(1 << 63), (1 << 63) - 1) | st.none(),
        "input_sizes": st.lists(st.lists(st.integers(-2, 1 << 40), max_size=4), max_size=3) | st.integers(),
        "input_dtypes": st.lists(st.sampled_from(["Float", "Half"]) | st.integers(0, 20)),
        "state": st.sampled_from(["scheduled", "started", "?"]) | st.none(),
        "retired": st.booleans() | st.none(),
        "duration_ms": st.floats(),
        "splits": st.lists(st.integers(0, 300)) | st.integers() | st.text(),
    },
)


def _fits(value: object) -> bool:
    """Whether torch's encoding has a form for it: it writes no integer above 64 bits."""
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 63


@given(st.lists(CALLS, max_size=12))
def test_entries_with_any_fields_are_read_the_same(changes: list[dict[str, object]]):
    made = [entry(i, **{k: v for k, v in change.items() if _fits(v)}) for i, change in enumerate(changes)]
    assert_same(encode(dump([*made, *made])))


def test_entries_that_hold_nothing_but_a_name_are_read_the_same():
    data = encode(dump([{"profiling_name": "nccl:all_reduce"}] * 20))

    assert_same(data)
    assert len(read_pickle(data, fast=True).group) == 20


def test_an_entry_that_goes_on_after_its_end_is_left_to_the_machine():
    data = encode(dump([entry(0), entry(3), entry(6), entry(9)]))
    state = data.rindex(b"u", 0, data.rindex(b"eu"))
    longer = data[:state] + b"u(X\x05\x00\x00\x00pg_idK\x07u" + data[state + 1 :]

    assert_same(longer)
    assert read_pickle(longer, fast=True).pg_id.tolist() == [0, 0, 0, 7]


def test_a_reference_to_nothing_is_told_with_its_place_on_both_ways():
    data = encode(dump([entry(i % 3) for i in range(30)]))
    at = data.rindex(b"\x86") - 1
    broken = data[:at] + b"\xff" + data[at + 1 :]

    assert_same(broken)
    assert read_pickle(broken, fast=True).header.cut.startswith(f"damaged at byte {at - 1} ")


def test_budgets_count_what_layouts_take(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("forkpoint.traces.columns._SPARE_VISITS", -10_000)
    monkeypatch.setattr("forkpoint.traces.columns._VISITS_PER_BYTE", 0)
    data = encode(dump([entry(i) for i in range(100)]))

    assert_same(data)
    with pytest.raises(HostileInput):
        read_pickle(data, fast=True)


def test_a_file_in_which_every_entry_has_other_keys_compiles_few_layouts(monkeypatch: pytest.MonkeyPatch):
    learned: list[object] = []
    learn = fast._learn
    monkeypatch.setattr(fast, "_learn", lambda *a: learned.append(a) or learn(*a))
    made = [entry(0, **{f"key{i}": 0}) for i in range(50)]
    assert_same(encode(dump(made)))

    assert len(learned) == fast._MAX_LAYOUTS
