"""A file that ends early gives what it still holds, and says so."""

import json
import pickle

import pytest
from msgspec.structs import replace

from forkpoint.errors import UnreadableInput
from forkpoint.traces.columns import GroupStatus
from forkpoint.traces.dump import decode
from ingest.compare import as_values, both_ways
from ingest.encode import encode
from ingest.samples import dump, entry, varied_dump
from looping import for_each, one_in

ENTRIES = 6
WRITERS = {"torch": encode, "protocol 2": lambda d: pickle.dumps(d, 2), "protocol 5": lambda d: pickle.dumps(d, 5)}


@for_each("write", WRITERS.values(), ids=WRITERS.keys())
def test_a_cut_at_any_byte_gives_the_entries_before_it(write):
    data = write(dump([entry(i) for i in range(ENTRIES)]))
    found: list[int] = []
    refused: list[str] = []
    for size in range(1, len(data)):
        try:
            columns = decode(data[:size], "f")
        except UnreadableInput as error:
            refused.append(str(error))
            continue
        assert columns.record_id.tolist() == list(range(len(columns.group)))
        assert columns.header.cut is not None
        assert columns.header.cut.startswith(f"cut at byte {size}; ")
        assert columns.header.status == {0: GroupStatus(15, -1, 14)}
        found.append(len(columns.group))
    assert found == sorted(found)
    assert set(found) == set(range(ENTRIES + 1))
    assert len(refused) == len(data) - 1 - len(found)
    assert all(message.startswith("f: ") and message.isprintable() and "cut at byte" in message for message in refused)


def test_a_cut_in_the_bare_list_of_torch_2_2_gives_the_entries_before_it():
    data = encode([entry(i) for i in range(ENTRIES)])

    assert decode(data[:-30], "f").record_id.tolist() == list(range(ENTRIES - 1))


def test_the_cut_is_told_in_a_sentence():
    data = encode(dump([entry(i) for i in range(ENTRIES)]))

    assert decode(data[:-20], "f").header.cut == f"cut at byte {len(data) - 20}; 5 entries before it are used"
    first = data.index(b"record_id") + 5
    assert decode(data[:first], "f").header.cut == f"cut at byte {first}; no entries before it are used"


def test_entries_left_out_are_told_beside_the_cut():
    data = encode(dump([entry(0), entry(1, pg_id="?"), entry(2)]))

    assert decode(data[:-2], "f").header.cut == (
        f"cut at byte {len(data) - 2}; 2 entries before it are used; 1 entry not understood (pg_id is not an integer)"
    )


def test_a_cut_before_the_first_entry_is_an_error_with_a_next_step():
    with pytest.raises(UnreadableInput, match=r"^f: cut at byte 40, before its first entry; copy it again"):
        decode(encode(dump([entry()]))[:40], "f")


@for_each("data", [b"", b"\x80", b"\x80\x02", b"hello", b"PK\x03\x04", b"\x80\x02\x00\x00"])
def test_a_file_with_nothing_in_it_is_refused_in_one_line(data: bytes):
    with pytest.raises(UnreadableInput, match=r"^f: [^\n]+; [^\n]+$"):
        decode(data, "f")


def test_a_tail_of_zeros_is_damage_after_the_entries():
    """A file system that lost power leaves the blocks that were never written."""
    data = encode(dump([entry(i) for i in range(ENTRIES)]))
    columns = decode(data[:-200] + bytes(200), "f")

    assert 0 < len(columns.group) < ENTRIES
    assert columns.header.cut is not None
    assert columns.header.cut.startswith("damaged at byte ")


def test_a_json_file_cut_anywhere_gives_the_entries_before_the_cut():
    whole = json.dumps(dump([entry(i, frames=...) for i in range(ENTRIES)]), sort_keys=True).encode()
    start = whole.index(b"[{")
    found = set[int]()
    for size in range(start, len(whole)):
        try:
            columns = decode(whole[:size], "f")
        except UnreadableInput:
            continue
        assert columns.header.cut is not None
        assert columns.record_id.tolist() == list(range(len(columns.group)))
        found.add(len(columns.group))
    assert found == set(range(1, ENTRIES + 1))


@one_in(5)
def test_a_cut_gives_the_same_by_layouts_and_by_the_machine(share):
    data = encode(varied_dump(5, 30))
    for size in range(1, len(data), 11 * share):
        fast, slow = both_ways(data[:size])
        assert fast == slow


def test_what_follows_the_end_of_a_pickle_is_counted_and_not_read():
    data, more = encode(dump([entry()])), b"cos\nsystem\n"

    longer = decode(data + more, "f")

    assert longer.header.behind == len(more)
    assert as_values(replace(longer, header=replace(longer.header, behind=0))) == as_values(decode(data, "f"))
