"""The watchdog's lines of every release, and those of its look-alikes."""

from forkpoint.evidence.logs import Counters, Group, LogEvent, LogKind, Work, read_log
from looping import for_each


def read_one(line: str) -> LogEvent:
    (event,) = read_log(line.encode(), "log", None).events
    return event


@for_each(
    ("line", "work"),
    [
        (
            (
                "[E ProcessGroupNCCL.cpp:566] [Rank 3] Watchdog caught collective operation timeout: "
                "WorkNCCL(OpType=ALLREDUCE, TensorShape=[1], Timeout(ms)=1800000) ran for 1803308 milliseconds before timing out."
            ),
            Work("ALLREDUCE", None, None, None, 1_800_000, 1_803_308),
        ),
        (
            (
                "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=469508, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out."
            ),
            Work("ALLREDUCE", 469508, None, None, 1_800_000, 1_802_212),
        ),
        (
            (
                "[E ProcessGroupNCCL.cpp:828] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
                "OpType=BROADCAST, TensorShape=[4, 5], Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out."
            ),
            Work("BROADCAST", 7, None, None, 1_800_000, 1_802_212),
        ),
        (
            (
                "[rank0]:[E1206 18:44:12.715298746 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation "
                "timeout: WorkNCCL(SeqNum=7753, OpType=_REDUCE_SCATTER_BASE, NumelIn=544997376, NumelOut=68124672, "
                "Timeout(ms)=600000) ran for 600061 milliseconds before timing out."
            ),
            Work("_REDUCE_SCATTER_BASE", 7753, 544_997_376, 68_124_672, 600_000, 600_061),
        ),
        (
            (
                "[rank0]:[E1206 18:44:12.7 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
                "WorkNCCL(SeqNum=9, OpType=COALESCED, NumelIn=18446744073709551615, NumelOut=18446744073709551615, "
                "Timeout(ms)=600000) ran for 600061 milliseconds before timing out."
            ),
            Work("COALESCED", 9, None, None, 600_000, 600_061),
        ),
        (
            (
                "[rank1]:[E324 13:00:25.428029551 compiler_depend.ts:574] [Rank 1] Watchdog caught collective operation "
                "timeout: WorkHCCL(SeqNum=196, OpType=ALLREDUCE, Timeout(ms)=3600000) ran for 3600185 milliseconds before "
                "timing out."
            ),
            Work("ALLREDUCE", 196, None, None, 3_600_000, 3_600_185),
        ),
    ],
    ids=["1.10", "1.11", "2.0", "2.1", "coalesced", "hccl"],
)
def test_a_timeout_names_the_operation_and_the_groups_timeout(line: str, work: Work) -> None:
    event = read_one(line)

    assert (event.kind, event.work, event.seq) == (LogKind.WATCHDOG_TIMEOUT, work, work.seq)


def test_the_global_rank_is_the_one_in_front_and_the_other_is_the_groups() -> None:
    event = read_one(
        "[rank15]:[E513 13:25:57.1 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1, OpType=GATHER, NumelIn=1, NumelOut=0, Timeout(ms)=600000) ran for 600020 milliseconds"
    )

    assert (event.rank, event.group) == (15, Group(None, None, 1))


def test_without_a_rank_in_front_there_is_none() -> None:
    event = read_one(
        "[E ProcessGroupNCCL.cpp:737] [Rank 1] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=4, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 1802212 milliseconds before timing out."
    )

    assert event.rank is None


@for_each(
    ("line", "group", "counters"),
    [
        (
            (
                "[rank1]:[E ProcessGroupNCCL.cpp:1537] [PG 1 Rank 1] Timeout at NCCL work: 158046, last enqueued NCCL work: "
                "158046, last completed NCCL work: 158045."
            ),
            Group("1", None, 1),
            Counters(158046, 158045),
        ),
        (
            (
                "[rank0]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:1664] [PG 1 (tp) Rank 0] Exception (either an error or "
                "timeout) detected by watchdog at work: 1580, last enqueued NCCL work: 1582, last completed NCCL work: 1579."
            ),
            Group("1", "tp", 0),
            Counters(1582, 1579),
        ),
        (
            (
                "[rank0]:[E602 11:17:52.1 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank 0]  failure detected "
                "by watchdog at work sequence id: 1580 PG status: last enqueued work: 1582, last completed work: 1579"
            ),
            Group("0", "default_pg", 0),
            Counters(1582, 1579),
        ),
        (
            (
                "[rank0]:[E602 11:17:52.1 ProcessGroupNCCL.cpp:2168] [PG ID 3 PG GUID 7 Rank 1]  failure detected by watchdog "
                "at work sequence id: 9 PG status: last enqueued work: 12, last started work: 9 (ALLREDUCE), "
                "last completed work: 8"
            ),
            Group("7", None, 1),
            Counters(12, 8, 9),
        ),
        (
            (
                "[PG ID 3 PG GUID 7 Rank 1]  failure detected by watchdog at work sequence id: 9 PG status: last enqueued "
                "work: 12, last started work: -1, last completed work: 8"
            ),
            Group("7", None, 1),
            Counters(12, 8, None),
        ),
    ],
    ids=["2.3", "2.4", "2.6", "2.13", "start events off"],
)
def test_a_status_line_counts_what_the_group_did(line: str, group: Group, counters: Counters) -> None:
    event = read_one(line)

    assert (event.kind, event.group, event.counters) == (LogKind.GROUP_STATUS, group, counters)


@for_each(
    ("words", "origin"),
    [
        ("Received a dump signal due to a collective timeout from  rank 3 and we will try our best", "3"),
        ("Received a dump signal due to a collective timeout from this local rank and we will try our best", None),
        ("Received a global dump signal from rank 3, and will start", "3"),
    ],
)
def test_a_dump_signal_names_who_asked_first(words: str, origin: str | None) -> None:
    event = read_one(
        f"[rank0]:[E1 01:00:00.1 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 0] {words} to dump the "
        "debug info. Last enqueued NCCL work: 15, last completed NCCL work: 14.This is most likely caused by"
    )

    assert (event.kind, event.detail("origin_rank"), event.counters) == (LogKind.DUMP_SIGNAL, origin, Counters(15, 14))


def test_the_echo_of_a_timeout_is_not_a_second_timeout() -> None:
    event = read_one(
        "[rank1]:[E ProcessGroupNCCL.cpp:1414] [PG 1 Rank 1] Process group watchdog thread terminated with exception: "
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=158046, OpType=GATHER, NumelIn=2867200, "
        "NumelOut=0, Timeout(ms)=600000) ran for 600027 milliseconds before timing out."
    )

    assert (event.kind, event.seq) == (LogKind.WATCHDOG_DIED, 158046)


def test_a_group_that_is_made_tells_its_timeout_and_the_global_rank() -> None:
    event = read_one(
        "[I1115 01:17:50.7 ProcessGroupNCCL.cpp:988] [PG ID 1 PG GUID 5 Rank 0] ProcessGroupNCCL initialization options: "
        "size: 2, global rank: 6, TIMEOUT(ms): 20000, USE_HIGH_PRIORITY_STREAM: 0, SPLIT_FROM: 0, PG Name: 5"
    )

    assert (event.rank, event.detail("size"), event.detail("group_timeout_ms")) == (6, "2", "20000")


def test_a_communicator_tells_where_its_ranks_live_but_not_their_global_numbers() -> None:
    event = read_one(
        "node-52:1759:1759 [3] NCCL INFO ncclCommInitRankConfig comm 0x48ee0840 rank 1 nranks 4 cudaDev 3 nvmlDev 3 "
        "busId 60 commId 0xc0c3bdb52e03e3d6 - Init START"
    )

    assert event.rank is None
    assert (event.speaker.host, event.detail("comm_rank"), event.detail("bus_id")) == ("node-52", "1", "60")
