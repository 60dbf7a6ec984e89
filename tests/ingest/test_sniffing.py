"""What a file is shows in its first bytes."""

import json
import pickle

import pytest

from forkpoint.errors import HostileInput
from forkpoint.traces import dump as flight_recorder
from forkpoint.traces.dump import decode, looks_like_dump
from ingest.encode import encode
from ingest.samples import dump, entry
from looping import for_each

DUMPS = {
    "torch": encode(dump([entry()])),
    "torch 2.2": encode([entry()]),
    **{f"protocol {n}": pickle.dumps(dump([entry()]), n) for n in (2, 3, 4, 5)},
    "json": json.dumps(dump([entry()])).encode(),
    "sorted json": json.dumps(dump([entry()], entries=...), sort_keys=True, indent=1).encode(),
}
OTHERS = {
    "empty": b"",
    "log": b"[rank0]:[E1115 03:21:00.123 ProcessGroupNCCL.cpp:632] entries: pg_config",
    "protocol 0": pickle.dumps({}, 0),
    "tensor file": b"PK\x03\x04archive/data.pkl",
    "other json": b'{"name": "forkpoint", "version": "1.2.3"}',
    "protocol 9": b"\x80\x09}",
}


@for_each("data", DUMPS.values(), ids=DUMPS.keys())
def test_a_dump_is_known_by_its_first_bytes(data: bytes):
    assert looks_like_dump(data[:200])


@for_each("data", OTHERS.values(), ids=OTHERS.keys())
def test_other_files_are_not_taken_for_dumps(data: bytes):
    assert not looks_like_dump(data)


def test_a_file_larger_than_any_dump_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(flight_recorder, "MAX_BYTES", 100)

    with pytest.raises(HostileInput, match=r"^f: has "):
        decode(DUMPS["torch"], "f")
