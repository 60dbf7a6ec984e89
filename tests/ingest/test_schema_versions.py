"""Dumps of every PyTorch version say the same thing in the same columns."""

import pickle
from collections.abc import Callable

import pytest

from forkpoint.errors import UnreadableInput
from forkpoint.model.op import Frame, Signature
from forkpoint.traces.columns import NO_FRAMES, DumpColumns, GroupConfig, GroupStatus
from forkpoint.traces.dump import decode
from ingest.encode import encode
from ingest.samples import ALL_REDUCE, MAIN, MODULE, T0, dump, entry
from looping import for_each

Write = Callable[[object], bytes]


def _protocol(number: int) -> Write:
    return lambda value: pickle.dumps(value, number)


WRITERS = {"torch": encode, **{f"protocol {n}": _protocol(n) for n in (2, 3, 4, 5)}}
each_writer = for_each("write", WRITERS.values(), ids=WRITERS.keys())


def read(entries: list[dict[str, object]], **changed: object) -> DumpColumns:
    return decode(encode(dump(entries, **changed)), "nccl_trace_rank_0")


def read_one(**changed: object) -> DumpColumns:
    return read([entry(0, **changed)])


def signature_of(**changed: object) -> Signature:
    columns = read_one(**changed)
    return columns.signatures[int(columns.signature[0])]


@each_writer
def test_a_dump_of_torch_2_9_and_later_is_read_in_full(write: Write):
    columns = decode(write(dump([entry(i) for i in range(5)])), "nccl_trace_rank_0")

    assert columns.header.schema == "2.10"
    assert columns.header.comm_lib_version == "2.28.9"
    assert columns.header.groups == (GroupConfig("0", "default_pg", (0, 1, 2, 3)),)
    assert columns.header.status == {0: GroupStatus(15, -1, 14)}
    assert columns.header.rank is None
    assert columns.header.cut is None
    assert columns.groups == (("0", "default_pg"),)
    assert columns.threads == ("pt_main_thread",)
    assert columns.signatures == (
        Signature("nccl", "all_reduce", None, ((16, 4096),), ("BFloat16",), ((16, 4096),), ("BFloat16",)),
    )
    assert columns.stacks[0] == (Frame(**ALL_REDUCE), Frame(**MAIN), Frame(**MODULE))
    assert columns.stack.tolist() == [0, 1, 2, 0, 1]
    assert columns.record_id.tolist() == [0, 1, 2, 3, 4]
    assert columns.collective_seq.tolist() == [1, 2, 3, 4, 5]
    assert columns.created_ns.tolist() == [T0 + i * 1_000_000 for i in range(5)]
    assert columns.started_ns.tolist() == [0] * 5
    assert columns.completed_ns.tolist() == [T0 + i * 1_000_000 + 700_000 for i in range(5)]
    assert columns.state.tolist() == [2] * 5
    assert columns.retired.tolist() == [True] * 5
    assert columns.timeout_ms.tolist() == [600_000] * 5


@each_writer
def test_the_bare_list_of_torch_2_2_is_read(write: Write):
    old = {
        "pg_id": 3,
        "seq_id": 7,
        "profiling_name": "nccl:all_reduce",
        "time_created_us": T0 // 1000,
        "input_sizes": [[4]],
        "output_sizes": [[4]],
        "state": "scheduled",
        "retired": False,
        "frames": [MAIN, MODULE],
    }
    columns = decode(write([old, {**old, "seq_id": 8}]), "nccl_trace_rank_0")

    assert columns.header.schema == ""
    assert columns.header.groups == ()
    assert columns.groups == (("3", ""),)
    assert columns.collective_seq.tolist() == [7, 8]
    assert columns.created_ns.tolist() == [T0 // 1000 * 1000] * 2
    assert columns.signatures[0].input_dtypes == ()
    assert columns.stacks == ((Frame(**MAIN), Frame(**MODULE)),)


@each_writer
def test_schema_1_4_names_its_groups_by_number(write: Write):
    old = entry(collective_seq_id=..., p2p_seq_id=..., is_p2p=..., process_group=..., op_id=..., seq_id=9, pg_id=1)
    columns = decode(
        write(dump([old], version="1.4", pg_config={0: [0, 1, 2, 3], 1: [0, 2]}, pg_status=..., comm_lib_version=...)),
        "nccl_trace_rank_0",
    )

    assert columns.header.groups == (GroupConfig("0", "", (0, 1, 2, 3)), GroupConfig("1", "", (0, 2)))
    assert columns.header.comm_lib_version is None
    assert columns.groups == (("1", ""),)
    assert columns.members()[0] == (0, 2)
    assert columns.collective_seq.tolist() == [9]


def test_before_schema_2_1_a_message_is_known_by_its_name_and_shares_the_counter():
    columns = read_one(collective_seq_id=..., p2p_seq_id=..., is_p2p=..., seq_id=9, profiling_name="nccl:send 0->1")

    assert columns.is_p2p.tolist() == [True]
    assert columns.p2p_seq.tolist() == [9]


def test_drafts_of_schema_2_1_number_their_dtypes():
    signature = signature_of(input_dtypes=[6, 15, 99], output_dtypes=[4])

    assert signature.input_dtypes == ("Float", "BFloat16", "99")
    assert signature.output_dtypes == ("Long",)


@pytest.mark.parametrize("key", ["nccl_version", "comm_lib_version"])
def test_the_library_version_is_found_under_its_old_and_new_name(key: str):
    columns = read([entry()], **{"comm_lib_version": ..., key: "2.27.5"})

    assert columns.header.comm_lib_version == "2.27.5"


def test_keys_of_schemas_to_come_are_ignored():
    columns = read(
        [entry(i, input_splits=[1, 2, 3], flavour={"a": [None, 2.5, b"x"]}) for i in range(3)],
        version="2.11",
        health_check_results={"gpu": [True]},
    )

    assert columns.header.schema == "2.11"
    assert columns.header.cut is None
    assert len(columns.group) == 3


def test_gloo_registers_its_groups_without_a_name_and_their_ranks_say_nothing():
    config = {"": {"name": "", "desc": "undefined", "ranks": "[0, 1]"}}
    columns = read([entry(profiling_name="gloo:all_reduce", state="scheduled")], pg_config=config, comm_lib_version="")

    assert columns.header.groups == (GroupConfig("", "undefined", None),)
    assert columns.signatures[0].lib == "gloo"


@for_each(
    ("ranks", "expected"),
    [
        ("[0, 1]", (0, 1)),
        ("[3]", (3,)),
        ("[ 5,6 ,7 ]", (5, 6, 7)),
        ([4, 5], (4, 5)),
        ("[]", None),
        ("", None),
        ([], None),
        (None, None),
        (str(list(range(0, 4000, 2))), tuple(range(0, 4000, 2))),
    ],
)
def test_ranks_are_read_from_text_or_list(ranks: object, expected: tuple[int, ...] | None):
    columns = read([entry()], pg_config={"0": {"name": "0", "desc": "d", "ranks": ranks}})

    assert columns.header.groups[0].ranks == expected


def test_entries_may_lack_frames():
    columns = read([entry(0, frames=...), entry(2), entry(0)])

    assert columns.stack.tolist() == [NO_FRAMES, 0, 1]
    assert columns.stacks[0] == ()


def test_a_dump_without_entries_is_whole():
    assert len(read([]).group) == 0
    assert read([]).header.cut is None


def test_a_dump_rewritten_by_another_tool_may_say_its_rank():
    assert read([entry()], rank=3).header.rank == 3
    assert read([entry()], rank="3").header.rank is None
    assert read([entry()], rank=True).header.rank is None


@for_each(
    ("name", "expected"),
    [
        ("nccl:send 0->1", ("nccl", "send", (0, 1))),
        ("nccl:recv 1<-0", ("nccl", "recv", (0, 1))),
        ("nccl2:recv 3<-?", ("nccl2", "recv", None)),
        ("nccl:ALLGATHER_coalesced", ("nccl", "ALLGATHER_coalesced", None)),
        ("all_reduce", ("", "all_reduce", None)),
        ("nccl:send 0->99999999999", ("nccl", "send 0->99999999999", None)),
        ("", ("", "", None)),
    ],
)
def test_a_name_is_split_into_library_op_and_peers(name: str, expected: tuple[str, str, tuple[int, int] | None]):
    signature = signature_of(profiling_name=name)

    assert (signature.lib, signature.op, signature.peers) == expected


@for_each(("state", "number"), [("scheduled", 0), ("started", 1), ("completed", 2), ("melted", 0)])
def test_states_become_numbers_and_unknown_ones_mean_scheduled(state: str, number: int):
    assert read_one(state=state).state.tolist() == [number]


def test_missing_fields_are_zero():
    columns = read([{"profiling_name": "nccl:all_reduce"}])

    assert columns.header.cut is None
    assert columns.groups == (("0", ""),)
    assert columns.threads == ("",)
    assert columns.timeout_ms.tolist() == columns.completed_ns.tolist() == columns.op_id.tolist() == [0]
    assert columns.retired.tolist() == [False]


def test_equal_values_are_in_the_tables_once_whatever_they_were_written_as():
    columns = read([entry(0, input_sizes=[[2, 3]]), entry(0, input_sizes=[(2, 3)])])

    assert columns.signature.tolist() == [0, 0]


MALFORMED = {
    "profiling_name": 5,
    "pg_id": "0",
    "process_group": ("0",),
    "thread_name": 1,
    "collective_seq_id": 1.5,
    "record_id": 1 << 64,
    "time_created_ns": True,
    "input_sizes": 7,
    "output_sizes": [[-1]],
    "input_dtypes": "Float",
    "output_dtypes": [None],
    "state": 2,
    "retired": "no",
    "frames": [["main"]],
}


@for_each("field", MALFORMED)
def test_an_entry_that_makes_no_sense_is_left_out_and_said(field: str):
    data = pickle.dumps(dump([entry(0), entry(1, **{field: MALFORMED[field]}), entry(2)]), 2)
    columns = decode(data, "nccl_trace_rank_0")

    assert columns.record_id.tolist() == [0, 2]
    assert columns.header.cut is not None
    assert columns.header.cut.startswith("1 entry not understood (")
    assert len(columns.groups) == len(columns.threads) == len(columns.signatures) == 1


def test_entries_left_out_leave_nothing_in_the_tables():
    strange = entry(1, process_group=("9", "other"), thread_name="other", frames=[MODULE], record_id="?")
    columns = decode(pickle.dumps(dump([strange, entry(0)]), 2), "nccl_trace_rank_0")

    assert columns.groups == (("0", "default_pg"),)
    assert (
        columns.group.tolist() == columns.signature.tolist() == columns.thread.tolist() == columns.stack.tolist() == [0]
    )


@for_each(
    "changed",
    [
        {"version": 2.1},
        {"entries": "none"},
        {"pg_config": [1]},
        {"pg_config": {"0": {"name": "0", "desc": 1, "ranks": "[0]"}}},
        {"pg_config": {"0": {"name": "0", "desc": "", "ranks": "0-3"}}},
        {"pg_config": {"0": {"name": "0", "desc": "", "ranks": "[0, 9999999999]"}}},
        {"pg_config": {0: [0, -1]}},
        {"pg_status": {"zero": {}}},
        {"pg_status": {"0": {"last_enqueued_collective": "many"}}},
    ],
)
def test_a_header_that_makes_no_sense_is_refused_by_the_name_of_its_field(changed: dict[str, object]):
    with pytest.raises(UnreadableInput, match=rf"^nccl_trace_rank_0: .*{next(iter(changed))}"):
        decode(pickle.dumps(dump([entry()], **changed), 2), "nccl_trace_rank_0")


def test_a_dump_of_which_no_entry_makes_sense_is_refused():
    with pytest.raises(UnreadableInput, match=r"none of its 2 entries can be understood .*profiling_name"):
        read([entry(0, profiling_name=...), entry(1, profiling_name=None)])


@for_each("value", [{}, {"weights": [1.0]}, "text", 5, None, (1, 2)])
def test_other_pickles_are_no_dumps(value: object):
    with pytest.raises(UnreadableInput, match="x: not a flight recorder dump"):
        decode(pickle.dumps(value, 4), "x")
