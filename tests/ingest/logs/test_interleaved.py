"""However the lines of several ranks fall into one file, each says what it says alone."""

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from forkpoint.evidence.logs import LogEvent, read_log

C10 = "[E1115 01:18:31.5 ProcessGroupNCCL.cpp:733] "
GROUP = "[PG ID 0 PG GUID 0(default_pg) Rank 1] "
PIECES = (
    ["2026-11-15 01:02:03 INFO step 3 loss 2.1"],
    ["  indented text of the program"],
    [
        "Traceback (most recent call last):",
        '  File "/train/a.py", line 1, in f',
        "    g()",
        '  File "/train/b.py", line 2, in g',
        "ValueError: no",
    ],
    [
        "Traceback (most recent call last):",
        '  File "/train/a.py", line 7, in f',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "step 4",
    ],
    [f"@{C10}Stack trace of the failed collective: ", "#0 all_reduce from /torch/c10d.py:3", "#1 f from /a.py:4", ""],
    [
        (
            f"@{C10}[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=16, OpType=ALLREDUCE, NumelIn=7, "
            "NumelOut=7, Timeout(ms)=20000) ran for 20091 milliseconds before timing out."
        )
    ],
    [
        (
            f"@{C10}{GROUP} failure detected by watchdog at work sequence id: 16 PG status: last enqueued work: 16, "
            "last completed work: 15"
        )
    ],
    [
        (
            f"@{C10}[Rank 1] Collective WorkNCCL(SeqNum=14, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=20000) raised "
            "the following async exception: NCCL error: remote process exited"
        ),
        "ncclRemoteError: A call failed",
        "Last error:",
        "socketProgress: Connection closed by remote peer localhost<39204>",
        "",
    ],
    ["Fatal Python error: Segmentation fault", ""],
    ["Current thread 0x00007f4256e22b80 (most recent call first):", '  File "/a.py", line 9 in step', ""],
)


def facts(event: LogEvent) -> tuple[object, ...]:
    return (event.kind, event.text, event.seq, event.stack, event.work, event.counters, event.details, event.exception)


@given(
    st.lists(st.lists(st.sampled_from(PIECES), max_size=6), min_size=2, max_size=4),
    st.lists(st.integers(0, 3), max_size=120),
    st.sampled_from(["{0}: ", "[pod/job-worker-{0}/main] ", "(Worker pid=10{0}, ip=10.0.0.{0}) ", "[1,{0}]<stderr>:"]),
)
def test_ranks_in_one_file_say_what_they_say_alone(
    pieces: list[list[list[str]]], order: list[int], prefix: str
) -> None:
    lines = [[line for piece in own for line in piece] for own in pieces]
    alone = [
        read_log("\n".join(line.replace("@", f"[rank{rank}]:", 1) for line in own).encode(), "one", rank)
        for rank, own in enumerate(lines)
    ]

    queues = [deque(own) for own in lines]
    turns = [*order, *(rank for rank, own in enumerate(lines) for _ in own)]
    mixed = [
        prefix.format(rank) + queues[rank].popleft().replace("@", f"[rank{rank}]:", 1)
        for rank in turns
        if rank < len(queues) and queues[rank]
    ]
    together = read_log("\n".join(mixed).encode(), "all", None)

    for rank, reading in enumerate(alone):
        own = [e for e in together.events if _speaks(e, rank)]
        assert [facts(e) for e in own] == [facts(e) for e in reading.events]


def _speaks(event: LogEvent, rank: int) -> bool:
    speaker = event.speaker
    return rank in {event.rank, speaker.task} or speaker.host in {f"job-worker-{rank}", f"10.0.0.{rank}"}
