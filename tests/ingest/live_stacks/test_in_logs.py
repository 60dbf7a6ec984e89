"""Stacks that stand in logs: behind launchers' prefixes, between the lines of others."""

import io
import itertools
from pathlib import Path

import pytest

from forkpoint.evidence import read, text_files
from forkpoint.evidence.logs import LogReading, read_log
from forkpoint.evidence.stacks import read as in_logs
from forkpoint.evidence.stacks.read import read_live_stacks
from ingest.live_stacks.recorded import recorded
from looping import for_each

FAULTHANDLER = """\
Thread 0x00007f99f13fe6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f99f13fe6c1 (most recent call first):
  File "/env/site-packages/torch/distributed/distributed_c10d.py", line 2806 in all_reduce
  File "/train/train.py", line {line} in step
  File "/train/train.py", line 99 in <module>
"""
PY_SPY = """\
Process 7085: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 7085 (active): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2806)
        Locals:
            work: "waits (train.py:1)"
    step (train.py:{line})
    <module> (train.py:99)
"""
GDB = """\
Thread 1 (Thread 0x7fd71781cb80 (LWP 26369) "python"):
Traceback (most recent call first):
  File "/train/train.py", line {line}, in step
  File "/train/train.py", line 99, in <module>
"""
TIMEOUT = (
    "[rank{rank}]:[E1115 01:18:27.134150253 ProcessGroupNCCL.cpp:689] [Rank 0] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=20000) ran for 20091 milliseconds"
)


def interleaved(form: str, prefix: str, ranks: int = 3) -> list[str]:
    """Lines of several ranks, one of each in turn, and what they print while they train."""
    texts = [[prefix.format(rank) + line for line in form.format(line=40 + rank).splitlines()] for rank in range(ranks)]
    return [*itertools.chain(*zip(*texts, strict=True)), prefix.format(0) + "step 7 loss 2.1"]


def steps(reading: LogReading) -> dict[int | None, int]:
    """The line of `step`, by rank."""
    return {one.rank: next(f.line for f in one.stack if f.name == "step") for one in reading.stacks}


@for_each("form", [FAULTHANDLER, PY_SPY, GDB], ids=["faulthandler", "py-spy", "gdb"])
@for_each(
    "prefix",
    [
        "[rank{}]: ",
        "[rank{}]:",
        "{}: ",
        "[1,{}]<stderr>:",
        "2026-11-15T01:18:27.134150253Z [rank{}]: ",
        "2026-11-15T01:18:27.134150253Z stderr F [rank{}]: ",
        "trainer-1  | [rank{}]: ",
        "Nov 15 01:18:27 node-1 python[77]: [rank{}]: ",
        "(Worker pid=77, ip=10.0.0.1) [rank{}]: ",
    ],
)
def test_the_prefix_tells_whose_an_interleaved_stack_is(form: str, prefix: str) -> None:
    lines = interleaved(form, prefix)
    reading = read_log("\n".join(lines).encode(), "job.log", None)

    assert steps(reading) == {0: 40, 1: 41, 2: 42}
    for one in reading.stacks:
        assert lines[one.line - 1].startswith(prefix.format(one.rank))


def test_a_process_of_ray_is_the_rank_that_it_called_itself() -> None:
    prefix = "(Worker pid=10{}, ip=10.0.0.1) "
    said = [prefix.format(rank) + TIMEOUT.format(rank=rank + 8) for rank in range(2)]
    reading = read_log("\n".join([*said, *interleaved(PY_SPY, prefix)]).encode(), "driver.log", None)

    assert steps(reading) == {8: 40, 9: 41, None: 42}


@for_each("prefix", ["[default{}]:", "trainer-{}  | ", "(Worker pid=10{}, ip=10.0.0.1) "])
def test_a_number_that_is_no_rank_stays_none(prefix: str) -> None:
    reading = read_log("\n".join(interleaved(FAULTHANDLER, prefix)).encode(), "job.log", None)

    assert [one.rank for one in reading.stacks] == [None, None, None]


def test_a_label_of_a_node_with_several_processes_is_no_rank() -> None:
    second = FAULTHANDLER.replace("13fe6c", "22fe6c")
    text = "".join(f"0: {line}\n" for line in (FAULTHANDLER + "\n" + second).format(line=40).splitlines())

    assert [one.rank for one in read_log(text.encode(), "job.log", None).stacks] == [None]


def test_blocks_of_a_debug_server_in_a_log_name_their_ranks() -> None:
    text = recorded("debug_server_stacks.txt")
    alone = read_live_stacks(text, "stacks.txt", None)
    in_log = read_log(f"step 1\n{text}".encode(), "job.log", None).stacks

    assert len(alone) > 1
    assert [(one.rank, one.line, one.stack) for one in in_log] == [(s.rank, s.line + 1, s.stack) for s in alone]


def test_a_stack_at_the_end_of_a_log_larger_than_memory_is_found(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(text_files, "IN_MEMORY", 1 << 10)
    path = tmp_path / "rank_4.log"
    path.write_text("step 1 loss 2.1\n" * 1000 + PY_SPY.format(line=40))
    (stack,) = read([str(path)]).stacks

    assert (stack.rank, stack.line) == (4, 1004)


def test_of_what_cannot_be_read_twice_all_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin(io.BytesIO):
        buffer = property(lambda self: self)

        def seekable(self) -> bool:
            return False

    monkeypatch.setattr(text_files, "IN_MEMORY", 1 << 10)
    log = "step 1 loss 2.1\n" * 1000 + TIMEOUT.format(rank=3) + "\n"
    monkeypatch.setattr("sys.stdin", Stdin(log.encode()))
    capture = read(["-"])

    assert [event.rank for event in capture.events] == [3]
    assert capture.problems == ()


def test_a_stack_without_a_rank_is_told_not_dropped(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("step 1\n" + PY_SPY.format(line=40))
    (tmp_path / "stacks.txt").write_text(PY_SPY.format(line=40))
    problems = read([str(tmp_path)]).problems

    assert {problem.file.rpartition("/")[2]: problem.text.partition(";")[0] for problem in problems} == {
        "job.log": "the rank of the stack at line 5 is not known",
        "stacks.txt": "nothing says which rank process 7085 is",
    }


def test_a_program_that_died_in_its_first_line_has_a_log(tmp_path: Path) -> None:
    path = tmp_path / "rank_2.err"
    path.write_text("Fatal Python error: Segmentation fault\n\n" + FAULTHANDLER.format(line=40))
    capture = read([str(path)])

    assert ("crashed", 2) in {(event.kind.value, event.rank) for event in capture.events}
    assert capture.logs == ((str(path), 2),)


def test_lines_beyond_the_budget_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_logs, "_ALL_AT_MOST", 10)
    reading = read_log("\n".join(interleaved(FAULTHANDLER, "[rank{}]: ")).encode(), "log", None)

    assert "lines of stacks" in " ".join(problem.text for problem in reading.problems)


def test_of_a_program_that_dumps_again_and_again_the_last_dump_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_logs, "_EACH_AT_MOST", 50)
    log = "".join(FAULTHANDLER.format(line=line) + "step\n" * 60 for line in range(40, 60))
    reading = read_log(log.encode(), "rank_0.log", 0)

    assert steps(reading) == {0: 59}
    assert reading.problems == ()
