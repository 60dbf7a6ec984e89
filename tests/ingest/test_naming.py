"""Whose file it is, by its name and by those of its neighbours."""

from forkpoint.evidence.file_names import FileNames
from looping import for_each


@for_each(
    ("names", "ranks"),
    [
        (["nccl_trace_rank_0", "nccl_trace_rank_3"], [0, 3]),
        (["trace_rank_node02_5"], [5]),
        (["job_rank0_hang/_dump_1", "job_rank0_hang/_dump_3"], [1, 3]),
        (["job_rank0_hang/_dump_3"], [3]),
        (["rank_0/dump_0.bin", "rank_3/dump_0.bin"], [0, 3]),
        (["rank_3/dump_0.bin"], [3]),
        (["comm_traces/rank_12/dump"], [12]),
        (["dump_4.bin"], [4]),
        (["2026-11-16 run/rank_3"], [3]),
        (["node07/3.pkl"], [3]),
    ],
)
def test_a_dump_is_of_the_rank_in_its_own_name_before_that_of_its_folder(names: list[str], ranks: list[int]) -> None:
    known = FileNames(names)

    assert [known.of_dump(name) for name in names] == ranks


@for_each(
    ("names", "ranks"),
    [
        (["log_rank_0.txt", "log_rank_1.txt"], [0, 1]),
        (["rank0_part1.log", "rank0_part2.log"], [0, 0]),
        (["job_rank0_hang/a.log", "job_rank0_hang/b.log"], [0, 0]),
        (["job_rank0_hang/out_1.log", "job_rank0_hang/out_2.log"], [None, None]),
        (["local_rank_3.log"], [None]),
        (["node0.log", "node1.log"], [None, None]),
        (["slurm-4711.out"], [None]),
    ],
)
def test_only_a_number_after_the_word_rank_is_one_for_sure(names: list[str], ranks: list[int | None]) -> None:
    known = FileNames(names)

    assert [known.spelled(name) for name in names] == ranks


@for_each(
    ("names", "ranks"),
    [
        (["run/attempt_0/0/stderr.log", "run/attempt_0/3/stderr.log"], [0, 3]),
        (["run/attempt_0/3/stderr.log"], [3]),
        (["slurm-88123_0.out", "slurm-88123_2.out"], [0, 2]),
        (["pipe-412.nid001200.0.out", "pipe-412.nid001201.7.out"], [0, 7]),
        (["pyspy.task0", "pyspy.task4"], [0, 4]),
        (["pyspy.task4"], [None]),
        (["logs/worker-0.log", "logs/worker-1.log"], [None, None]),
        (["attempt_1.log", "attempt_2.log"], [None, None]),
        (["005/capture/console.log"], [None]),
        (["slurm-4711.out"], [None]),
    ],
)
def test_a_place_suggests_a_rank_where_files_differ_in_it(names: list[str], ranks: list[int | None]) -> None:
    known = FileNames(names)

    assert [known.placed(name) for name in names] == ranks


@for_each(
    ("names", "ranks"),
    [
        (["job-worker-0.txt", "job-worker-1.txt", "job-worker-4.txt"], [0, 1, 4]),
        (["job-worker-1.txt", "job-worker-2.txt", "job-worker-3.txt"], [None] * 3),
        (["job-worker-0.txt", "job-worker-1.txt", "job-master-0.txt"], [None] * 3),
        (["job-3-worker-0.txt", "job-3-worker-1.txt", "job-3-worker-2.txt"], [0, 1, 2]),
        (["node0-worker-0.txt", "node0-worker-1.txt", "node1-worker-0.txt"], [None] * 3),
    ],
    ids=["from 0", "from 1", "beside a master", "a number that all share", "two numbers that differ"],
)
def test_the_only_number_that_differs_counts_processes_from_0(names: list[str], ranks: list[int | None]) -> None:
    known = FileNames(names)

    assert [known.counted(name) for name in names] == ranks
