"""The JSON form of a dump, as PyTorch's debug server gives it."""

import json

import pytest

from forkpoint.errors import HostileInput, InputError, UnreadableInput
from forkpoint.traces.columns import NO_FRAMES, GroupConfig, GroupStatus
from forkpoint.traces.dump import decode
from ingest.samples import T0, dump, entry

STATUS = {"0": {"last_enqueued_collective": "15", "last_started_collective": "-1", "last_completed_collective": "14"}}


def write(entries: list[dict[str, object]], /, **changed: object) -> bytes:
    fields: dict[str, object] = {"pg_status": STATUS, "nccl_comm_state": {}, **changed}
    return json.dumps(dump(entries, **fields), sort_keys=True).encode()


def test_a_json_dump_is_read_as_its_pickle_would_be():
    unfinished = entry(1, frames=..., time_discovered_completed_ns=0, time_discovered_started_ns=0, state="scheduled")
    columns = decode(write([entry(0, frames=..., time_discovered_started_ns=0), unfinished]), "f")

    assert columns.header.schema == "2.10"
    assert columns.header.cut is None
    assert columns.header.groups == (GroupConfig("0", "default_pg", (0, 1, 2, 3)),)
    assert columns.header.status == {0: GroupStatus(15, -1, 14)}
    assert columns.groups == (("0", "default_pg"),)
    assert columns.stack.tolist() == [NO_FRAMES, NO_FRAMES]
    assert columns.completed_ns.tolist() == [T0 + 700_000, 0]
    assert columns.state.tolist() == [2, 0]


def test_entries_are_absent_when_there_are_none():
    columns = decode(write([], entries=...), "f")

    assert len(columns.group) == 0
    assert columns.header.cut is None


def test_json_of_something_else_is_no_dump():
    for data in (b"{}", b'{"name": "package"}', b"[1, 2]", b'{"entries": 5}'):
        with pytest.raises(UnreadableInput):
            decode(data, "f")


@pytest.mark.parametrize("deep", [b'{"entries": ' + b"[" * 200_000, b'{"a":' * 200_000])
def test_json_that_nests_without_end_is_refused(deep: bytes):
    with pytest.raises(HostileInput, match=r"nested too deep|more lists and objects"):
        decode(deep, "f")


def test_a_number_of_a_million_digits_is_refused_and_not_computed():
    with pytest.raises(InputError):
        decode(b'{"version": "2.10", "entries": [{"pg_id": ' + b"9" * 1_000_000 + b"}]}", "f")


def test_half_a_surrogate_pair_stays_printable():
    columns = decode(write([entry(frames=..., thread_name="\ud800")]), "f")

    assert columns.threads == ("\ufffd",)


def test_a_byte_order_mark_does_no_harm():
    assert len(decode(b"\xef\xbb\xbf" + write([entry(frames=...)]), "f").group) == 1
