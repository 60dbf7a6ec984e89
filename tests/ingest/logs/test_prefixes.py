"""Whose line it is, by every launcher's prefix."""

from collections.abc import Sequence

from forkpoint.evidence.logs import Speaker, read_log
from forkpoint.evidence.logs.lines import parse_line, split_glued
from looping import for_each

SAYS = "ValueError: no"


@for_each(
    ("prefix", "speaker"),
    [
        ("", Speaker()),
        ("[rank3]: ", Speaker(rank=3)),
        ("[rank: 3] ", Speaker(rank=3)),
        ("[default5]:", Speaker(local_rank=5)),
        ("[default5]:[rank13]: ", Speaker(rank=13, local_rank=5)),
        ("[trainer22|6]:", Speaker(local_rank=6)),
        ("[node-7]: ", Speaker(host="node-7")),
        ("12: ", Speaker(task=12)),
        (" 3: ", Speaker(task=3)),
        ("11: [rank11]: ", Speaker(rank=11, task=11)),
        ("[1,12]<stderr>:", Speaker(task=12)),
        ("[1,mpirank:12,algo-2]<stderr>:", Speaker(task=12, host="algo-2")),
        ("(TrainWorker pid=123, ip=10.0.0.1) ", Speaker(host="10.0.0.1", pid=123)),
        ("\x1b[36m(WorkerDict pid=4009)\x1b[0m ", Speaker(pid=4009)),
        ("(RayWorkerWrapper pid=4009) [rank1]: ", Speaker(rank=1, pid=4009)),
        ("(head, rank=0, pid=1234) ", Speaker(pid=1234)),
        ("[pod/job-worker-3/pytorch] ", Speaker(host="job-worker-3")),
        ("pod/job-worker-3 pytorch ", Speaker(host="job-worker-3")),
        ("[pod/job-worker-3/pytorch] 2026-11-15T01:02:03.123456789Z [rank3]: ", Speaker(rank=3, host="job-worker-3")),
        ("2026-11-15T01:02:03.123456789Z ", Speaker()),
        ("2026-11-15T01:02:03.123456789Z stderr F ", Speaker()),
        ("worker-1  | ", Speaker(host="worker-1")),
        ("Nov 15 01:02:03 node9 python[77]: ", Speaker(host="node9", pid=77)),
        ("2026-11-15T01:02:03+0100 node9 python[77]: ", Speaker(host="node9", pid=77)),
        ("10.0.0.2: ", Speaker(host="10.0.0.2")),
        ("gpu-node-12: [rank8]: ", Speaker(rank=8, host="gpu-node-12")),
    ],
)
def test_a_prefix_says_who_speaks_and_leaves_the_message(prefix: str, speaker: Speaker) -> None:
    line = parse_line(prefix + SAYS)

    assert (line.speaker, line.message) == (speaker, SAYS)


@for_each(
    "text",
    [
        "[Rank 3] Watchdog",
        "[PG ID 0 PG GUID 0(default_pg) Rank 3] text",
        "rank3: text",
        "[rank03]: text",
        "[rank12345678]: text",
        "step [rank3]: text",
        "(VllmWorker rank=3 pid=7) text",
        "2026-11-15 01:18:30,064 [rank3] train: step 6",
        "12:34:56 text",
    ],
)
def test_what_only_looks_like_a_rank_is_none(text: str) -> None:
    speaker = parse_line(text).speaker

    assert (speaker.rank, speaker.task) == (None, None)


def test_the_inner_of_two_ranks_is_the_global_one() -> None:
    line = parse_line("[rank1]:[rank9]:[E1115 01:18:27.1 ProcessGroupNCCL.cpp:689] text")

    assert (line.speaker.rank, line.role) == (9, 1)


def test_a_launcher_whose_role_is_rank_numbers_local_workers() -> None:
    log = (
        b"[rank1]:[rank9]:[E1115 01:18:27.1 ProcessGroupNCCL.cpp:1] First PG on this rank to signal dumping.\n"
        b"[rank0]:RuntimeError: CUDA error: unspecified launch failure\n"
    )
    reading = read_log(log, "log", None)

    assert [(event.rank, event.speaker.local_rank) for event in reading.events] == [(9, None), (None, 0)]
    assert reading.speakers == {9}
    assert "workers of one node" in reading.problems[0].text


def test_srun_labels_are_ranks_unless_a_line_says_otherwise() -> None:
    line = b"%d: RuntimeError: CUDA error: unspecified launch failure\n"
    ranks = read_log(b"0: step 1\n1: step 1\n" + line % 1, "log", None)
    nodes = read_log(b"0: [rank7]: step 1\n1: step 1\n" + line % 1, "log", None)
    torchrun = read_log(b"0: [default7]:step 1\n1: step 1\n" + line % 1, "log", None)

    assert ([event.rank for event in ranks.events], ranks.speakers) == ([1], {0, 1})
    assert ([event.rank for event in nodes.events], nodes.speakers) == ([None], {7})
    assert ([event.rank for event in torchrun.events], torchrun.speakers) == ([None], frozenset())


def test_a_number_and_a_colon_here_and_there_are_no_labels() -> None:
    log = b"scores by class\n" * 5 + b"3: RuntimeError: CUDA error: unspecified launch failure\n"

    assert read_log(log, "log", None).events[0].rank is None


def test_what_ray_left_out_is_counted_and_told() -> None:
    log = (
        b"(WorkerDict pid=9) [rank3]:[E1 01:00:00.1 ProcessGroupNCCL.cpp:1] First PG on this rank to signal dumping."
        b" [repeated 4x across cluster] (Ray deduplicates logs by default. Set RAY_DEDUP_LOGS=0 to disable)\n"
    )
    reading = read_log(log, "log", None)

    assert (reading.events[0].rank, reading.events[0].repeated) == (3, 5)
    assert "RAY_DEDUP_LOGS=0" in reading.problems[0].text


def test_progress_bars_and_writers_that_run_together_are_taken_apart() -> None:
    header = "[E1115 01:18:27.1 ProcessGroupNCCL.cpp:1] "

    assert split_glued(f" 40%|###  |\r 41%|###  |[rank3]:{header}a[rank2]:{header}b") == [
        " 40%|###  |",
        " 41%|###  |",
        f"[rank3]:{header}a",
        f"[rank2]:{header}b",
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Prefixes of the program's own, where no launcher says who speaks.

DROPS = "no improvement for 3 epochs"
HEARD = "[rank0]: W a warning of torch\n[rank2]: W a warning of torch\n"


def _who(*lines: str) -> list[int | None]:
    return [e.rank for e in read_log("".join(f"{line}\n" for line in lines).encode(), "log", None).events]


@for_each(
    ("line", "rank"),
    [
        (f"[rank 2] {DROPS}", 2),
        (f"rank 2: {DROPS}", 2),
        (f"2026-11-16 02:39:10,600 INFO rank 2: {DROPS}", 2),
        (f"[2026-11-16 02:39:10] [INFO] train: [rank 2] {DROPS}", 2),
        (f"02:39:10 | WARNING | rank=2 | {DROPS}", 2),
        (f"2026-11-18 02:29:08,168 callbacks [rank 2] {DROPS}", 2),
        (f"2026-11-18 02:29:08,168 callbacks (rank=2) {DROPS}", 2),
        (f"2026-11-18 02:29:08,168 callbacks rank 2 {DROPS}", None),
        (f"2026-11-18 02:29:08,168 train INFO [rank 2] {DROPS}", 2),
        (f"2026-11-18 02:29:08,168 waiting for [rank 2], {DROPS}", None),
        (f"2026-11-18 02:29:08,168 lost peer [rank 2], {DROPS}", None),
        (f"2026-11-18 02:29:08,168 there was no answer [rank 2], {DROPS}", None),
        (f"stopped [rank 2], {DROPS}", None),
        (f"callbacks [local_rank 2] {DROPS}", None),
        (f"waiting for rank 3, {DROPS}", None),
        (f"rank 3/8: {DROPS}", None),
        (f"rank 13/16: {DROPS}", None),
        (f"local_rank 3: {DROPS}", None),
        (DROPS, None),
    ],
)
def test_a_program_s_own_prefix_says_who_speaks(line: str, rank: int | None) -> None:
    assert _who("epoch 0", line) == [rank]


@for_each(
    ("heard", "numbers", "rank"),
    [
        (HEARD, (0, 2, 1, 1, 0, 2), 2),
        ("", (0, 2, 1, 1, 0, 2), 2),
        ("loading\nloaded\n", (0, 2, 1, 1, 0, 2), None),
        ("", (1, 2, 3, 1, 2, 3), None),
        (HEARD, (0, 2, 0, 2, 0, 2), None),
        (HEARD, (0, 2, 1, 1, 0, 12), None),
        (HEARD, tuple([0] * 9 + [1] * 9 + [2] * 9), None),
    ],
    ids=[
        "just the ranks of the job",
        "nothing names ranks, and every line has one",
        "nothing names ranks, and some lines have none",
        "nothing names ranks, and they do not count from 0",
        "one of them is missing",
        "one is no rank",
        "they only grow",
    ],
)
def test_a_number_in_brackets_is_a_rank_where_all_are_those_of_the_job_and_take_turns(
    heard: str, numbers: tuple[int, ...], rank: int | None
) -> None:
    lines = [f"[{number}] epoch 3 loss 0.1" for number in numbers]

    assert _who(*heard.splitlines(), *lines, f"[2] {DROPS}") == [rank]


def test_steps_in_brackets_are_no_ranks() -> None:
    assert _who(*HEARD.splitlines(), *(f"[{step}] loss 0.1" for step in range(12)), f"[12] loss nan, {DROPS}") == [None]


def test_a_log_is_of_the_ranks_that_begin_its_lines() -> None:
    one, two = "[rank 2] epoch 0\n[rank 2] epoch 1\n", "[rank 2] epoch 0\n[rank 1] epoch 0\n"
    about = "waiting for rank 2\nrank 2/4 is here\nthe slowest is rank 2 of 4 has left\n"

    assert [read_log(text.encode(), "log", None).speakers for text in (one, two, about)] == [{2}, {1, 2}, set()]
    assert read_log(one.encode(), "log", 5).speakers == frozenset()


@for_each(
    ("lines", "speakers"),
    [
        (("pod trainer-x7 is rank 3 of 5", "step 1", "step 2"), {3}),
        (("running as rank 3/5", "step 1"), {3}),
        (("2026-11-19 04:12:08,850 INFO rank 3/5: rendezvous", "step 1"), {3}),
        (("rank 3/5 timed out", "waiting for rank 3/5"), set()),
        (("this is rank 3 of 5", "this is rank 4 of 5"), set()),
        ([f"05:29:35 INFO [1/3] train: step {n}" for n in range(3)], {1}),
        ([f"05:29:35 INFO [{n}/3] train: step 1" for n in range(3)], set()),
        (["05:29:35 INFO [3/3] files read"] * 3, set()),
        ([f"05:29:35 cluster r2 fit: step {n}" for n in range(3)], {2}),
        (["05:29:35 cluster r2 fit", *(f"05:29:36 fit: step {n}" for n in range(3))], set()),
        (["05:29:35 [1] begins"] * 3, set()),
    ],
    ids=[
        "it introduces itself",
        "as rank and size",
        "at the beginning of a line",
        "what is said of another rank",
        "two introduce themselves",
        "number and size in each line",
        "parts of three",
        "the last of three parts",
        "a letter and a number in each line",
        "not in each line",
        "a number alone",
    ],
)
def test_a_log_is_of_the_rank_that_its_lines_carry(lines: Sequence[str], speakers: set[int]) -> None:
    assert read_log("\n".join((*lines, "")).encode(), "log", None).speakers == speakers


def test_a_number_between_bars_is_a_rank_where_ranks_take_turns() -> None:
    lines = [f"2026-11-18 05:27:2{step} | {rank} | step {step} loss 0.1" for step in range(4) for rank in (1, 0, 2)]
    pids = [f"2026-11-18 05:27:2{step} | {pid} | step {step} loss 0.1" for step in range(4) for pid in (4711, 4713)]

    assert _who(*lines, f"2026-11-18 05:27:29 | 2 | {DROPS}") == [2]
    assert _who(*pids, f"2026-11-18 05:27:29 | 4711 | {DROPS}") == [None]
