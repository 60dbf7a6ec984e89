"""Files that ask for more than data may: refused, in one line, without running or allocating anything."""

import os
import pickle
import struct
import tracemalloc

import pytest

from forkpoint.errors import HostileInput, InputError, UnreadableInput
from forkpoint.traces.dump import decode
from forkpoint.traces.pickles import MAX_DEPTH
from ingest.compare import both_ways
from ingest.encode import encode
from ingest.samples import dump, entry
from looping import for_each

HEAD = b"\x80\x02}(X\x07\x00\x00\x00version"
"""The beginning of a dump; the value of its first key is up to the test."""


class Shell:
    def __reduce__(self):
        return os.system, ("echo never > /tmp/never",)


class State:
    def __setstate__(self, state):
        pass


def read(value: bytes) -> None:
    """Decodes both ways a dump that has this value at its beginning."""
    fast, slow = both_ways(HEAD + value)
    assert fast == slow
    decode(HEAD + value, "f")


@for_each(("protocol", "opcode"), [(2, "GLOBAL"), (3, "GLOBAL"), (4, "STACK_GLOBAL"), (5, "STACK_GLOBAL")])
def test_a_pickle_that_would_run_a_command_is_refused_by_name_and_place(protocol: int, opcode: str):
    data = pickle.dumps(dump([entry(0), entry(1, state=Shell())]), protocol)

    with pytest.raises(HostileInput, match=rf"^f: asks to run code \(pickle opcode {opcode} at byte \d+\)"):
        decode(data, "f")


@for_each(
    ("code", "name"),
    [
        (b"cos\nsystem\n", "GLOBAL"),
        (b"\x93", "STACK_GLOBAL"),
        (b"R", "REDUCE"),
        (b"b", "BUILD"),
        (b"ios\nsystem\n", "INST"),
        (b"o", "OBJ"),
        (b"\x81", "NEWOBJ"),
        (b"\x92", "NEWOBJ_EX"),
        (b"\x82\x01", "EXT1"),
        (b"\x83\x01\x00", "EXT2"),
        (b"\x84\x01\x00\x00\x00", "EXT4"),
        (b"P1\n", "PERSID"),
        (b"Q", "BINPERSID"),
    ],
)
def test_every_opcode_that_can_reach_code_is_refused_whatever_is_on_the_stack(code: bytes, name: str):
    with pytest.raises(HostileInput, match=f"asks to run code .*opcode {name} at byte"):
        read(b"X\x02\x00\x00\x00osX\x06\x00\x00\x00system" + code + b".")


@for_each("opcode", list(b"012FILSTUVdglp\x8f\x90\x91\x96\x97\x98"))
def test_opcodes_that_no_dump_needs_are_refused(opcode: int):
    with pytest.raises(HostileInput, match="is not plain data"):
        read(bytes((opcode,)) + b"\n\n.")


def test_an_object_with_state_is_refused():
    with pytest.raises(HostileInput):
        decode(pickle.dumps({"version": State()}, 2), "f")


def test_hostile_code_after_good_entries_condemns_the_whole_file():
    data = encode(dump([entry(i) for i in range(4)]))

    with pytest.raises(HostileInput):
        decode(data.replace(b"\x88h", b"cos\nsystem\nh"), "f")


@for_each(
    "claim",
    [
        b"X\xff\xff\xff\xff",
        b"\x8d" + struct.pack("<Q", 1 << 62),
        b"B\xff\xff\xff\x7f",
        b"\x8e" + struct.pack("<Q", 1 << 40),
        b"\x8b" + struct.pack("<I", 1 << 30),
        b"\x8b" + struct.pack("<I", 256),
    ],
)
def test_a_value_longer_than_any_dump_needs_is_refused_before_it_is_read(claim: bytes):
    with pytest.raises(HostileInput, match="claims a value of"):
        read(claim + bytes(1000))


@for_each("claim", [b"X\xff\xff\x00\x00", b"\x8c\xff", b"C\xff", b"\x8a\xff", b"\x8b\xff\x00\x00\x00"])
def test_a_value_longer_than_the_file_means_the_file_was_cut(claim: bytes):
    with pytest.raises(UnreadableInput, match="cut at byte"):
        read(claim + b"abc")


def test_deep_nesting_by_marks_is_refused():
    with pytest.raises(HostileInput, match=f"nested more than {MAX_DEPTH} levels deep"):
        read(b"](" * 10_000)


@for_each(
    "deep",
    [b"]" * 90_000 + b"a" * 89_999, b")" + b"\x85" * 90_000, b"}" * 90_000 + b"K\x01" + b"s" * 10],
    ids=["lists", "tuples", "dicts"],
)
def test_deep_nesting_without_marks_does_no_harm(deep: bytes):
    with pytest.raises(InputError):
        read(deep + b"u.")


def test_a_deep_tuple_cannot_be_a_key():
    """hash() of it would overflow the C stack."""
    with pytest.raises(UnreadableInput, match="a key is neither text nor a small number"):
        read(b"N" + b")" + b"\x85" * 90_000 + b"Nu.")


@for_each(
    "key",
    [b"]", b"}", b")", b"N", b"G" + bytes(8), b"C\x01a", b"\x8a\x08" + b"\xff" * 7 + b"\x1f"],
    ids=["list", "dict", "tuple", "None", "float", "bytes", "large number"],
)
def test_keys_are_text_or_small_numbers(key: bytes):
    with pytest.raises(UnreadableInput, match="a key is neither text nor a small number"):
        read(b"N" + key + b"Nu.")


@for_each("opcode", [b"]", b"}", b"N\x85"])
def test_a_file_of_empty_containers_is_refused(opcode: bytes):
    with pytest.raises(HostileInput, match="more lists and dicts"):
        read(opcode * 250_000)


@for_each(
    "broken",
    [
        b"NN(e.",
        b"Na.",
        b"N(NNu.",
        b"}N(NNu.",
        b"]s.",
        b"e.",
        b"\x86.",
        b"\x87.",
        b"t.",
        b"h\xff.",
        b"j\xff\xff\xff\xff.",
        b"q\x07.",
        b"r\xff\xff\xff\xff.",
        b"\x80\x09.",
        b".",
        b"\xff",
        b"X\x01\x00\x00\x00",
    ],
)
def test_opcodes_that_do_not_fit_together_are_damage(broken: bytes):
    with pytest.raises(UnreadableInput, match=r"^f: (damaged|cut) at byte \d+"):
        read(broken)


@for_each("data", [b"\x80\x02a", b"\x80\x02e", b"\x80\x02\x94", b"\x80\x02\x85.", b"\x80\x02."])
def test_an_empty_stack_is_damage(data: bytes):
    with pytest.raises(UnreadableInput):
        decode(data, "f")


def test_a_list_that_holds_itself_is_no_list_of_sizes():
    loop: list[object] = []
    loop.append(loop)
    data = pickle.dumps(dump([entry(0), entry(1, input_sizes=loop), entry(2, frames=loop)]), 2)
    columns = decode(data, "f")

    assert columns.record_id.tolist() == [0]
    assert columns.header.cut == "2 entries not understood (input_sizes is not a list of lists of integers)"


def test_an_entry_list_that_holds_itself_is_left_out():
    entries: list[object] = [entry(0)]
    entries.append(entries)

    assert decode(pickle.dumps(dump(entries), 2), "f").header.cut == "1 entry not understood (it is not a dict)"


@for_each("field", ["input_sizes", "output_dtypes", "frames"])
def test_a_small_file_that_unfolds_to_a_huge_dump_is_refused(field: str):
    shared: dict[str, object] = {
        "input_sizes": [[1] * 1000] * 100,
        "output_dtypes": ["Float"] * 20_000,
        "frames": [{"name": "f", "filename": "f.py", "line": 1}] * 20_000,
    }
    data = pickle.dumps(dump([entry(i, **{field: shared[field]}) for i in range(1000)]), 4)

    with pytest.raises(HostileInput, match="expands to far more data"):
        decode(data, "f")


def test_groups_that_share_one_huge_list_of_ranks_are_refused():
    ranks = list(range(10_000))
    data = pickle.dumps(dump([entry()], pg_config=dict.fromkeys(range(2000), ranks)), 4)

    with pytest.raises(HostileInput, match="expands to far more data"):
        decode(data, "f")


def test_a_memo_bomb_stays_a_reference():
    """Lists of lists of lists ...: 10**12 elements if anybody went through them."""
    bomb: list[object] = [0]
    for _ in range(12):
        bomb = [bomb] * 10
    data = pickle.dumps(dump([entry(0), entry(1, input_sizes=bomb)], extra=bomb), 4)

    assert decode(data, "f").record_id.tolist() == [0]


def test_memory_stays_a_small_multiple_of_the_file():
    data = encode(dump([entry(i) for i in range(3000)]))
    decode(data, "f")
    tracemalloc.start()
    decode(data, "f")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 8 * len(data)


def test_impossible_sizes_are_left_out_quickly():
    sizes = [[1 << 62] * 30_000]
    columns = decode(pickle.dumps(dump([entry(0), entry(1, input_sizes=sizes)]), 2), "f")

    assert columns.header.cut == "1 entry not understood (input_sizes is impossible)"


def test_texts_that_are_not_utf8_stay_printable():
    data = encode(dump([entry(thread_name="caf\xe9")])).replace("caf\xe9".encode(), b"caf\xff\xfe")
    columns = decode(data, "f")

    assert columns.threads == ("caf\ufffd\ufffd",)
