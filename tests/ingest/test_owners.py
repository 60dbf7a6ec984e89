"""Whose log or stack it is where nothing in it says so: by words that paths share, by numbers that others confirm. Each with a near miss."""

from pathlib import Path

import forkpoint
from forkpoint.evidence.file_names import PathWords
from forkpoint.model.capture import Capture
from looping import for_each
from small_jobs import SmallJob
from texts import CLOSED, raised, stack


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


# ---------------------------------------------------------------------------------------------------------------------
# Words in paths.


@for_each(
    ("path", "rank"),
    [
        ("cn43/stacks.txt", 3),
        ("stacks_cn42.txt", 2),
        ("cn44/stacks.txt", None),
        ("cn4/stacks.txt", None),
        ("nccl/stacks.txt", None),
        ("cn42/stacks_cn43.txt", None),
    ],
    ids=["a host's folder", "a host in the name", "an unknown host", "a part of a host", "a word of all", "two hosts"],
)
def test_a_word_that_only_files_of_one_rank_have_tells_whose_a_file_is(path: str, rank: int | None) -> None:
    words = PathWords([("nccl_trace_rank_cn42_2", 2), ("nccl_trace_rank_cn43_3", 3)])

    assert words.rank(path) == rank


def beside_dumps(folder: Path, hosts: dict[int, str], stacks: list[str]) -> Capture:
    job = SmallJob(4)
    job.op()
    for rank, host in hosts.items():
        (folder / f"nccl_trace_rank_{host}_{rank}").write_bytes(job.dump(rank))
    write(folder, dict.fromkeys(stacks, stack()))
    return forkpoint.read([str(folder)])


HOSTS = {rank: f"cn4{rank}" for rank in range(4)}


def test_the_stack_of_a_host_is_of_the_rank_whose_dump_names_that_host(tmp_path: Path) -> None:
    capture = beside_dumps(tmp_path, HOSTS, ["cn43/stacks.txt"])

    assert ([s.rank for s in capture.stacks], capture.problems) == ([3], ())


@for_each(
    ("hosts", "stacks"),
    [
        (dict.fromkeys(range(4), "cn43"), ["cn43/stacks.txt"]),
        (HOSTS, ["cn43/first.txt", "cn43/second.txt"]),
    ],
    ids=["the host has four ranks", "two files of one host"],
)
def test_a_stack_is_nobody_s_and_said_so_where_its_host_does_not_tell_the_rank(
    tmp_path: Path, hosts: dict[int, str], stacks: list[str]
) -> None:
    capture = beside_dumps(tmp_path, hosts, stacks)

    assert capture.stacks == ()
    assert all("the rank of the stack at line 1 is not known" in problem.text for problem in capture.problems)
    assert len(capture.problems) == len(stacks)


# ---------------------------------------------------------------------------------------------------------------------
# Numbers in paths.

ABORTED = "terminate called after throwing an instance of 'std::runtime_error'\n"


def owners(folder: Path, said: dict[int, str]) -> dict[int, int | None]:
    """By the number in the path."""
    write(folder, {f"worker_{number}/stderr.log": text for number, text in said.items()})
    return {int(file.split("/")[-2].split("_")[1]): rank for file, rank in forkpoint.read([str(folder)]).logs}


def test_a_log_in_which_nobody_speaks_is_of_its_number_where_that_is_the_rank_in_all_others(tmp_path: Path) -> None:
    said = {0: ABORTED, **{rank: raised(rank, CLOSED) for rank in (1, 2, 3)}}

    assert owners(tmp_path, said) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_numbers_that_are_all_one_less_than_the_rank_tell_the_rank_as_well(tmp_path: Path) -> None:
    """Workers behind a server that is rank 0."""
    said = {0: ABORTED, **{number: raised(number + 1, CLOSED) for number in (1, 2)}}

    assert owners(tmp_path, said) == {0: 1, 1: 2, 2: 3}


@for_each(
    "said",
    [
        {0: ABORTED, 1: raised(1, CLOSED)},
        {0: ABORTED, 1: raised(2, CLOSED), 2: raised(1, CLOSED), 3: raised(3, CLOSED)},
        {0: ABORTED, 1: raised(1, CLOSED) + raised(2, CLOSED), 2: raised(2, CLOSED), 3: raised(3, CLOSED)},
    ],
    ids=["only one speaks", "the others are not those numbers", "two speak in one"],
)
def test_a_number_is_no_rank_where_others_do_not_confirm_it(tmp_path: Path, said: dict[int, str]) -> None:
    assert owners(tmp_path, said)[0] is None


MISSING = (
    "torch.distributed.DistStoreError: Timed out after 46 seconds waiting for clients. 3/{world} clients joined.\n"
)


@for_each(
    ("numbers", "world", "owned"),
    [((0, 1, 2, 3), 4, True), ((0, 1, 3), 4, True), ((0, 1), 4, False), ((0, 1, 4), 4, False)],
    ids=["one for each rank", "one is missing", "two machines of two ranks", "one is no rank"],
)
def test_logs_are_of_their_numbers_where_these_are_the_ranks_that_a_log_counts(
    tmp_path: Path, numbers: tuple[int, ...], world: int, owned: bool
) -> None:
    said = {number: MISSING.format(world=world) if number == 0 else "loading\n" for number in numbers}

    assert owners(tmp_path, said) == {number: number if owned else None for number in numbers}


@for_each(
    ("numbers", "dumped", "owned"),
    [((0, 1, 2, 3), (0, 1, 2, 3), True), ((0, 1, 2), (0, 1, 2, 3), False), ((0, 1), (0, 1), False)],
    ids=["those of all dumps", "one less", "two of each"],
)
def test_logs_are_of_their_numbers_where_these_are_just_the_ranks_that_left_dumps(
    tmp_path: Path, numbers: tuple[int, ...], dumped: tuple[int, ...], owned: bool
) -> None:
    job = SmallJob(4)
    job.op()
    (tmp_path / "fr").mkdir()
    for rank in dumped:
        (tmp_path / "fr" / f"nccl_trace_rank_{rank}").write_bytes(job.dump(rank))

    found = owners(tmp_path, dict.fromkeys(numbers, "loading\n"))

    assert {number: found[number] for number in numbers} == {number: number if owned else None for number in numbers}


# ---------------------------------------------------------------------------------------------------------------------
# A thread that every rank runs is not what one main thread waits for.

BEAT = 'Thread 0x00007f01 (most recent call first):\n  File "/job/beat.py", line 8 in beat\n  File "/usr/lib/python3.11/threading.py", line 982 in run\n\n'
ON_LOCK = (
    "Current thread 0x00007f02 (most recent call first):\n"
    '  File "/usr/lib/python3.11/threading.py", line 327 in wait\n'
    '  File "/job/train.py", line 30 in main\n  File "/job/train.py", line 90 in <module>\n'
)


def tops(folder: Path, threads: dict[int, str]) -> dict[int, str]:
    """The innermost line of each rank."""
    write(folder, {f"stacks_rank_{rank}.txt": text for rank, text in threads.items()})
    return {s.rank: f"{s.stack[0].filename}:{s.stack[0].line}" for s in forkpoint.read([str(folder)]).stacks}


def test_a_heartbeat_that_runs_beside_the_calls_of_others_is_not_what_a_main_thread_waits_for(tmp_path: Path) -> None:
    others = {rank: BEAT + stack() for rank in (0, 1)}

    assert tops(tmp_path, others | {2: BEAT + ON_LOCK})[2] == "/usr/lib/python3.11/threading.py:327"


@for_each(
    "others",
    [
        {rank: stack() for rank in (0, 1)},
        {rank: BEAT.replace("line 8", "line 9") + stack() for rank in (0, 1)},
        dict.fromkeys((0, 1), BEAT + ON_LOCK),
    ],
    ids=["no other has it", "it is at another line there", "all wait for it"],
)
def test_a_thread_that_others_do_not_run_beside_their_calls_is_what_the_main_thread_waits_for(
    tmp_path: Path, others: dict[int, str]
) -> None:
    assert tops(tmp_path, others | {2: BEAT + ON_LOCK})[2] == "/job/beat.py:8"
