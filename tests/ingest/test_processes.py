"""Files of stacks that are named by process: the rank is what a log says of that process."""

from pathlib import Path

import forkpoint
from forkpoint.evidence.processes import agree_on_processes, read_listed_processes, read_processes
from looping import for_each

STACK = """Process {pid}: /usr/bin/python3 -u train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread {pid} (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3068)
    main (train.py:{line})
    <module> (train.py:60)
"""


def _stacks(folder: Path, pids: dict[int, int]) -> None:
    for pid, line in pids.items():
        (folder / f"py-spy-{pid}.txt").write_text(STACK.format(pid=pid, line=line))


def test_a_log_says_which_rank_a_process_is(tmp_path: Path) -> None:
    _stacks(tmp_path, {7001: 40, 7002: 41})
    (tmp_path / "console.log").write_text("INFO process_index=1 pid=7001\nINFO process_index=0 pid=7002\n")

    capture = forkpoint.read([str(tmp_path)])

    assert {stack.rank: stack.stack[1].line for stack in capture.stacks} == {1: 40, 0: 41}
    assert capture.problems == ()


def test_a_process_of_which_nothing_says_the_rank_is_nobody_and_the_file_is_named(tmp_path: Path) -> None:
    _stacks(tmp_path, {7001: 40, 7002: 41})
    (tmp_path / "console.log").write_text("INFO rank 0 of 2 starts\nINFO rank 1 of 2 starts\n")

    capture = forkpoint.read([str(tmp_path)])

    assert capture.stacks == ()
    assert ["process 7001" in p.text or "process 7002" in p.text for p in capture.problems] == [True, True]


def test_a_number_that_is_not_that_of_the_process_stays_the_rank(tmp_path: Path) -> None:
    for rank, pid in enumerate((7001, 7002)):
        (tmp_path / f"py-spy-{rank}.txt").write_text(STACK.format(pid=pid, line=40))

    assert [stack.rank for stack in forkpoint.read([str(tmp_path)]).stacks] == [0, 1]


SPAWN = "/usr/bin/python3 -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=4, pipe_handle={pipe}) --multiprocessing-fork"


@for_each(
    ("pipes", "ranks"),
    [((6, 8, 10), [0, 1, 2]), ((8, 10, 12), []), ((6, 8, 12), [])],
    ids=["all", "the first is missing", "one is missing"],
)
def test_processes_that_mp_spawn_started_are_ranks_in_that_order(
    tmp_path: Path, pipes: tuple[int, ...], ranks: list[int]
) -> None:
    for pid, pipe in enumerate(pipes, 7001):
        text = STACK.format(pid=pid, line=40).replace("/usr/bin/python3 -u train.py", SPAWN.format(pipe=pipe))
        (tmp_path / f"pyspy_{pid}.txt").write_text(text)

    assert [stack.rank for stack in forkpoint.read([str(tmp_path)]).stacks] == ranks


@for_each(
    ("ended", "ranks"),
    [((7001, 7002), {7001: 0, 7002: 1}), ((7002,), {}), ((7002, 7001), {})],
    ids=["all of the job", "one had ended before", "not in the order of their numbers"],
)
def test_a_launcher_ends_its_workers_in_the_order_of_their_ranks(
    tmp_path: Path, ended: tuple[int, ...], ranks: dict[int, int]
) -> None:
    _stacks(tmp_path, {7001: 40, 7002: 41})
    stops = [
        f"W1119 23:33:08.014000 5761 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process {pid} closing signal SIGTERM"
        for pid in ended
    ]
    (tmp_path / "console.log").write_text("\n".join(["world_size=2", *stops]) + "\n")

    found = {stack.file.rpartition("-")[2]: stack.rank for stack in forkpoint.read([str(tmp_path)]).stacks}

    assert found == {f"{pid}.txt": rank for pid, rank in ranks.items()}


def test_a_traceback_that_mp_spawn_repeats_is_of_the_process_that_it_numbers(tmp_path: Path) -> None:
    text = (
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 2 terminated with the following error:\n"
        "Traceback (most recent call last):\n"
        '  File "/job/train.py", line 91, in worker\n    raise ValueError("no")\nValueError: no\n'
    )
    (tmp_path / "console.log").write_text(
        f'Traceback (most recent call last):\n  File "/job/train.py", line 99, in <module>\n    main()\n{text}'
    )

    events = forkpoint.read([str(tmp_path)]).events

    assert [(e.rank, e.exception) for e in events if e.exception == "ValueError"] == [(2, "ValueError")]


def _of_pods(folder: Path, *names: str) -> forkpoint.Capture:
    for pid, name in enumerate(names, 7001):
        (folder / name).write_text(STACK.format(pid=pid, line=40))
    return forkpoint.read([str(folder)])


def test_pods_that_are_counted_from_0_are_ranks_and_the_capture_says_whence_it_knows(tmp_path: Path) -> None:
    capture = _of_pods(tmp_path, "job-worker-0.txt", "job-worker-1.txt", "job-worker-2.txt")

    assert [stack.rank for stack in capture.stacks] == [0, 1, 2]
    assert [p.text for p in capture.problems] == [
        f"its stack counts as rank {rank}'s, by the number in its name" for rank in range(3)
    ]


@for_each(
    "names",
    [
        ("job-worker-0.txt", "job-worker-1.txt"),
        ("job-worker-1.txt", "job-worker-2.txt", "job-worker-3.txt"),
        ("job-master-0.txt", "job-worker-0.txt", "job-worker-1.txt", "job-worker-2.txt"),
        ("job-worker-0.txt", "job-worker-1.txt", "job-worker-2.txt", "other.txt"),
    ],
    ids=["two may be any two", "from 1", "the master is rank 0", "one that is not counted"],
)
def test_pods_that_may_be_counted_otherwise_are_nobody_s(tmp_path: Path, names: tuple[str, ...]) -> None:
    capture = _of_pods(tmp_path, *names)

    assert capture.stacks == ()
    assert not any("counts as rank" in p.text for p in capture.problems)


def test_a_file_that_holds_two_processes_is_of_no_counted_rank_and_one_with_a_child_is(tmp_path: Path) -> None:
    names = ("job-worker-0.txt", "job-worker-1.txt", "job-worker-2.txt")
    _of_pods(tmp_path, *names)
    held = tmp_path / names[2]
    other = STACK.format(pid=7101, line=41)
    child = other.replace("\n\nThread", "\nParent Process 7003: python3 train.py\n\nThread")

    held.write_text(STACK.format(pid=7003, line=40) + other)
    two = forkpoint.read([str(tmp_path)])
    held.write_text(STACK.format(pid=7003, line=40) + child)
    with_child = forkpoint.read([str(tmp_path)])

    assert 2 not in {stack.rank for stack in two.stacks}
    assert [stack.rank for stack in with_child.stacks] == [0, 1, 2]


@for_each(
    ("line", "found"),
    [
        ("rank 3 (pid 7001) starts", [(7001, 3)]),
        ("pid: 7001, global_rank: 3", [(7001, 3)]),
        ('{"rank": 3, "pid": 7001}', [(7001, 3)]),
        ("local rank 3 (pid 7001) starts", []),
        ("local_rank=3 pid=7001", []),
        ("rank 3 starts\npid 7001 starts", []),
    ],
)
def test_only_a_line_with_both_says_it(line: str, found: list[tuple[int, int]]) -> None:
    assert list(read_processes(line)) == found


def test_processes_and_ranks_that_are_said_twice_otherwise_are_not_believed() -> None:
    assert agree_on_processes([(1, 0), (2, 1), (2, 1)]) == {1: 0, 2: 1}
    assert agree_on_processes([(1, 0), (1, 1), (2, 2)]) == {2: 2}
    assert agree_on_processes([(1, 0), (2, 0), (3, 1)]) == {3: 1}


LIST = """  PID  PPID STAT COMMAND
 4139  4027 Ssl  python3 /usr/bin/torchrun {options} --nproc-per-node {count} train.py
 4168  4139 Ssl  python3 -u train.py
 4170  4139 Ssl  python3 -u train.py
 4642  4168 S    python3 -u train.py
"""


@for_each(
    ("options", "count", "found"),
    [
        ("--standalone", 2, [(4168, 0), (4170, 1)]),
        ("--standalone", 3, []),
        ("--nnodes 2", 2, []),
        ("--nnodes=1 --node-rank=1", 2, []),
    ],
)
def test_workers_of_the_only_torchrun_are_listed_in_the_order_of_their_ranks(
    options: str, count: int, found: list[tuple[int, int]]
) -> None:
    assert list(read_listed_processes(LIST.format(options=options, count=count))) == found


def test_two_launchers_in_one_list_tell_nothing() -> None:
    assert list(read_listed_processes(LIST.format(options="", count=2) * 2)) == []
