"""Which files are read, and whose they are by their names."""

import os
import threading
from pathlib import Path

import pytest

from forkpoint.errors import UsageError
from forkpoint.evidence import read
from forkpoint.evidence.file_names import spelled_rank
from forkpoint.evidence.files import find_files
from looping import for_each


@for_each(
    ("name", "rank"),
    [
        ("rank3.log", 3),
        ("log_rank_12.txt", 12),
        ("global-rank-7.out", 7),
        ("rank_4/stderr.log", 4),
        ("node_rank_1_rank_9.log", 9),
        ("node_rank0.log", None),
        ("NodeRank-2.log", None),
        ("local_rank_5.txt", None),
        ("tp_rank_1.log", None),
        ("node_rank_1/stderr.log", None),
        ("slurm-4711.out", None),
    ],
)
def test_only_a_global_rank_in_a_name_is_one(name: str, rank: int | None) -> None:
    assert spelled_rank(name) == rank


def test_the_pipes_that_torch_leaves_beside_its_dumps_are_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_text("step 1\n")
    os.mkfifo(tmp_path / "nccl_trace_rank_0.pipe")

    assert find_files([str(tmp_path)]) == [str(tmp_path / "rank_0.log")]


def test_a_pipe_that_was_asked_for_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("[rank1]: step 1\n"))
    writer.start()
    capture = read([str(pipe)])
    writer.join()

    assert capture.logs == ((str(pipe), 1),)


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="no such file"):
        find_files(["nowhere"])
