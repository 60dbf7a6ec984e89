"""What the compiled reader leaves to the Python reader, so that errors, salvage and older versions are that one's own."""

import json
import pickle

import pytest

from forkpoint.traces import native
from forkpoint.traces.native import NativePacker
from ingest.encode import encode
from ingest.samples import MAIN, dump, entry

WHOLE = dump([entry(i) for i in range(4)])
GROUP = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
STATUS = {"last_enqueued_collective": 1, "last_started_collective": -1, "last_completed_collective": 1}

DECLINED = {
    "nothing": b"",
    "text": b"not a dump",
    "JSON": json.dumps(WHOLE).encode(),
    "pickled by Python": pickle.dumps(WHOLE, 2),
    "a later protocol": b"\x80\x03" + encode(WHOLE)[2:],
    "torch 2.2's bare list": encode(WHOLE["entries"]),
    "torch 2.3's keys": encode(dump([entry(0, seq_id=1, collective_seq_id=..., p2p_seq_id=...)])),
    "microseconds": encode(dump([entry(0, time_created_us=1, time_created_ns=...)])),
    "cut": encode(WHOLE)[:-40],
    "goes on behind its end": encode(WHOLE) + b".",
    "no version": encode(dump([entry(0)], version=...)),
    "no entries": encode(dump([], entries=...)),
    "entries that are no list": encode(dump([], entries={})),
    "an entry that is no dict": encode(dump([entry(0)])).replace(b"](}(", b"](K\x05}(", 1),
    "no name": encode(dump([entry(0, profiling_name=...)])),
    "a number for a name": encode(dump([entry(0, profiling_name=5)])),
    "a text for a number": encode(dump([entry(0, record_id="1")])),
    "dtypes as numbers": encode(dump([entry(0, input_dtypes=[6])])),
    "impossible sizes": encode(dump([entry(0, input_sizes=[[-1]])])),
    "more elements than can be counted": encode(dump([entry(0, input_sizes=[[1 << 40, 1 << 40]])])),
    "a frame without its line": encode(dump([entry(0, frames=[{"name": "f", "filename": "f.py"}])])),
    "a line that is none": encode(dump([entry(0, frames=[MAIN | {"line": 1 << 40}])])),
    "an operator": encode(WHOLE).replace(b"\x86", b"R", 1),
    "text that is no UTF-8": encode(WHOLE).replace(b"default_pg", b"default\xff\xff\xff", 1),
    "a reference to nothing": encode(WHOLE).replace(b"\x86", b"h\xff\x86", 1),
    "ranks that are no list": encode(dump([entry(0)], pg_config={"0": GROUP | {"ranks": "0, 1"}})),
    "groups of torch 2.3": encode(dump([entry(0)], pg_config={"0": [0, 1]})),
    "a status that is text": encode(dump([entry(0)], pg_status={"0": STATUS | {"last_enqueued_collective": "1"}})),
    "a status of no group": encode(dump([entry(0)], pg_status={"a": STATUS})),
    "numbers that go back": encode(dump([entry(0, collective_seq_id=5), entry(1, collective_seq_id=4)])),
    "a negative time": encode(dump([entry(0, time_created_ns=-5)])),
    "a group whose calls are all of a world before": encode(
        dump([entry(0), entry(1, pg_id=1, process_group=("1", "tp")), entry(2, pg_id=2, collective_seq_id=1)])
    ),
    "300 threads": encode(dump([entry(i, thread_name=f"t{i}") for i in range(300)])),
}


def test_the_file_from_which_the_others_are_made_is_taken(packer: NativePacker):
    assert packer.decode(encode(WHOLE)) is not None


@pytest.mark.parametrize("data", DECLINED.values(), ids=DECLINED)
def test_it_is_left_to_the_python_reader(packer: NativePacker, data: bytes):
    assert packer.decode(data) is None
    assert packer.summarise(0) is None


def test_every_beginning_of_a_file_is_declined(packer: NativePacker):
    data = encode(WHOLE)

    assert [at for at in range(len(data)) if packer.decode(data[:at]) is not None] == []


def test_a_key_that_comes_twice_is_declined(packer: NativePacker):
    pg_id = b"K\x00X\x0d\x00\x00\x00process_group"
    data = encode(WHOLE)
    again = data.replace(pg_id, b"K\x00X\x05\x00\x00\x00pg_idK\x00" + pg_id[2:], 1)

    assert len(again) == len(data) + 12
    assert packer.decode(again) is None


def test_a_file_that_makes_more_lists_than_its_size_allows_is_declined(packer: NativePacker):
    def nested(lists: int) -> bytes:
        return encode(dump([entry(0)], extra=[[]] * lists))

    assert packer.decode(nested(100)) is not None
    assert packer.decode(nested(1 << 20)) is None


def test_after_a_file_that_was_declined_the_next_is_taken(packer: NativePacker):
    assert packer.decode(encode(WHOLE)[:-1]) is None
    assert packer.decode(encode(WHOLE)).entries == 4


def test_tables_are_told_once(packer: NativePacker):
    packer.decode(encode(WHOLE))
    packer.summarise(0)

    assert packer.new_tables() != b""
    packer.decode(encode(WHOLE))
    packer.summarise(0)
    assert packer.new_tables() == b""


@pytest.mark.usefixtures("packer")
def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("FORKPOINT_NATIVE", "0")

    assert NativePacker.if_installed() is None


@pytest.mark.usefixtures("packer")
def test_a_library_of_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native, "FORMAT_VERSION", native.FORMAT_VERSION + 1)

    assert native._library.__wrapped__() is None


def test_without_the_library_there_is_no_compiled_reader(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "forkpoint_native", None)

    assert native._library.__wrapped__() is None
