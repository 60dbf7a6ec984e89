"""What takes longer than a look: dumps through pipes and native frames. Both are waited for only a while, and what is missing
is said.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from attach.test_finding_jobs import environ, processes
from forkpoint.gather.attach import look as looking
from forkpoint.gather.attach.asking import ask_pipes
from forkpoint.gather.attach.jobs import LiveJob, LiveRank
from forkpoint.gather.attach.look import Looker, RankSeen
from forkpoint.gather.attach.stacks import NoStacks, ProcessSample
from forkpoint.live.watch.sources import Spool, pipes
from forkpoint.live.watch.sources.pipes import usual_prefixes
from looping import for_each
from small_jobs import MODULE, SmallJob, as_py_spy
from watch.test_sources import rank_with_pipe

Frame = tuple[str, str, int]
TORCH = "/opt/lib/python3.12/site-packages/torch/distributed"
WAITS: tuple[Frame, ...] = (
    ("all_reduce", f"{TORCH}/distributed_c10d.py", 3252),
    ("step", "/job/train.py", 9),
)
TRAINS: tuple[Frame, ...] = (("train", "/job/train.py", 12),)
LOADS: tuple[Frame, ...] = (("load", "/job/train.py", 30),)


def job(*ranks: LiveRank) -> LiveJob:
    return LiveJob("train.py", frozenset(), len(ranks), ranks, ())


def rank(number: int, **environ: str) -> LiveRank:
    return LiveRank(os.getpid(), number, environ, "/", (), 2)


NOBODY = 1 << 23
"""Pids from here on are beyond Linux's largest."""


class Stacks:
    """In place of py-spy: ranks stand where `places` says; `native` adds a frame, or says why it cannot."""

    def __init__(self, *places: tuple[Frame, ...], native: str | NoStacks = "clock_nanosleep") -> None:
        self.places, self.native, self.asked = places, native, list[int]()

    def __call__(self, pid: int, _py_spy: str, *, native: bool = False, limit_s: float = 0.0) -> bytes | NoStacks:
        if not native:
            return as_py_spy(*self.places[pid - NOBODY]).encode()
        self.asked.append(pid - NOBODY)
        return (
            self.native
            if isinstance(self.native, NoStacks)
            else as_py_spy((self.native, "libc.so.6", 0), *self.places[pid - NOBODY]).encode()
        )


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(str(tmp_path / "spool"))


LookAt = Callable[[Stacks], looking.Look]


@pytest.fixture
def look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LookAt:
    def look(stacks: Stacks) -> looking.Look:
        monkeypatch.setattr(looking, "take_stacks", stacks)
        monkeypatch.setattr(looking, "find_py_spy", lambda: "py-spy")
        monkeypatch.setattr(looking, "AT_ONCE", 1)  # so that the order in which they are asked can be seen
        ranks = tuple(LiveRank(NOBODY + number, number, {}, "/", (), 2) for number in range(len(stacks.places)))
        return Looker(job(*ranks), tmp_path).look_around((0.0,)).last

    return look


def missing(seen: RankSeen) -> str:
    return "; ".join(seen.missing)


def test_ranks_are_asked_through_their_pipes_twice_and_one_that_does_not_write_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "_PATIENCE_S", 15.0)
    small = SmallJob(2)
    small.op()
    piped = {
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/ask",
        "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_",
    }
    with rank_with_pipe(tmp_path, 0, small.dump(0)), rank_with_pipe(tmp_path, 1, b"not a dump"):
        seen = Looker(job(rank(0, **piped), rank(1, **piped)), tmp_path / "looks", stacks=False).look_around((0.0,))

    first, second = (seen.last.ranks[number] for number in (0, 1))
    assert (first.answer.way, len(seen.last.dumps)) == ("pipe", 1)
    assert "no recorder" not in missing(first)
    assert f"no recorder: pipe: no dump yet at {tmp_path}/trace_" in missing(second)
    assert {path.parent.parent.name for path in (tmp_path / "looks").rglob("rank_0.pickle")} == {"0", "1"}


def test_dumps_are_looked_for_where_the_rank_s_own_environment_puts_them() -> None:
    alice = usual_prefixes({"HOME": "/home/alice", "XDG_CACHE_HOME": "/scratch/alice"})

    assert alice[:2] == ("/scratch/alice/torch/comm_lib_trace_rank_", "/home/alice/.cache/torch/comm_lib_trace_rank_")
    assert usual_prefixes({"HOME": "/home/alice", "TORCH_FR_DUMP_TEMP_FILE": "/d/t_"}) == ("/d/t_",)


def test_native_frames_are_read_first_of_one_rank_at_each_place_and_of_none_in_a_call(look_at: LookAt) -> None:
    stacks = Stacks(TRAINS, TRAINS, WAITS, LOADS)

    last = look_at(stacks)

    assert stacks.asked == [0, 3, 1]
    assert [frame.name for frame in last.stacks()[3]] == ["clock_nanosleep", "load"]
    assert [frame.name for frame in last.stacks()[2]] == ["all_reduce", "step"]


def test_a_rank_whose_native_frames_take_too_long_keeps_those_of_python_and_it_is_said(look_at: LookAt) -> None:
    last = look_at(Stacks(WAITS, LOADS, native=NoStacks("py-spy was not done after 5 s")))

    assert [frame.name for frame in last.stacks()[1]] == ["load"]
    assert "no native frames: py-spy was not done after 5 s" in missing(last.ranks[1])
    assert "no native frames" not in missing(last.ranks[0])


def test_what_python_s_frames_say_is_not_asked_again(look_at: LookAt) -> None:
    reads = (("read_bytes", "/usr/lib/python3.11/pathlib.py", 1050), ("load", "/job/train.py", 30))
    stacks = Stacks(WAITS, reads)

    look_at(stacks)

    assert stacks.asked == []


def test_a_pipe_that_a_later_job_made_is_not_asked(tmp_path: Path, spool: Spool) -> None:
    with processes(environ(0, 31011)) as (earlier,), rank_with_pipe(tmp_path, 0, b"of the later job"):
        named = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/ask"}
        asked = ask_pipes([LiveRank(earlier, 0, named, "/", ())], spool)

    assert (asked.dumps, asked.why_not[0].partition(" is ")[2]) == (
        {},
        "read by another process: a later job made a pipe of that name",
    )


def test_a_dump_that_another_job_would_write_over_is_not_asked_for(tmp_path: Path, spool: Spool) -> None:
    at_home = {"HOME": str(tmp_path)}
    with processes(environ(0, 31012, **at_home)) as (other,), rank_with_pipe(tmp_path, 0, b""):
        asked = ask_pipes([rank(0, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{tmp_path}/ask", **at_home)], spool)

    assert f"rank 0 of another job (pid {other}) writes its dump to the same file" in asked.why_not[0]


def test_a_dump_of_another_program_is_no_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = SmallJob(2)
    small.op()
    piped = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/ask", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}
    monkeypatch.setattr(looking, "find_py_spy", lambda: "py-spy")
    dumped = {}
    for script in (MODULE["filename"], "/job/other.py"):
        stack = as_py_spy(("<module>", script, 1)).encode()
        monkeypatch.setattr(looking, "take_stacks", lambda *_args, stack=stack, **_more: stack)
        with rank_with_pipe(tmp_path, 0, small.dump(0)):
            dumped[script] = Looker(job(rank(0, **piped)), tmp_path / script[1:]).look_around((0.0,)).last.ranks[0]
        (tmp_path / "ask0.pipe").unlink()

    assert dumped[MODULE["filename"]].answer.dump is not None
    assert dumped["/job/other.py"].answer.dump is None
    assert f"the dump in its file is of another program ({MODULE['filename']})" in missing(dumped["/job/other.py"])


@for_each(
    ("woken", "environ", "moved"),
    [
        ((40, 40), {}, {0, 1}),
        ((40, 2), {}, set()),
        ((40, 40), {"TORCH_NCCL_BLOCKING_WAIT": "1"}, set()),
    ],
)
def test_ranks_that_all_wake_again_and_again_move_unless_they_wait_by_polling(
    woken: tuple[int, int], environ: dict[str, str], moved: set[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = [0, 0]

    def sample(pid: int) -> ProcessSample:
        counted[pid - NOBODY] += woken[pid - NOBODY]
        return ProcessSample("S", switches=counted[pid - NOBODY])

    monkeypatch.setattr(looking, "take_stacks", Stacks(WAITS, WAITS))
    monkeypatch.setattr(looking, "find_py_spy", lambda: "py-spy")
    monkeypatch.setattr(looking, "sample_process", sample)
    ranks = (LiveRank(NOBODY + number, number, environ, "/", (), 2) for number in range(2))

    assert Looker(job(*ranks), tmp_path / str(woken)).look_around((0.0,)).moved == moved
