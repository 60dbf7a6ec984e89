"""Live ranks are asked, waited for, and never signalled."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forkpoint.evidence import read
from forkpoint.gather.attach.asking import find_pipes
from forkpoint.gather.attach.jobs import LiveRank
from forkpoint.gather.collect import RankQuestion, Wanted, ask_pipes, collect
from forkpoint.live.watch.sources import pipes
from forkpoint.live.watch.sources.ask import SourceAddress
from forkpoint.live.watch.sources.debug_server import DebugServer, DebugWorker
from small_jobs import SmallJob
from watch.test_sources import rank_with_pipe

JOB = Path(__file__).parents[1] / "watch" / "job.py"


def job() -> SmallJob:
    made = SmallJob(2)
    made.op()
    return made


def test_a_dump_that_is_asked_for_is_kept_when_it_is_whole(tmp_path: Path) -> None:
    with rank_with_pipe(tmp_path, 1, job().dump(1)) as written:
        question = ask_pipes(f"{tmp_path}/ask", (f"{tmp_path}/trace_",), 600.0)
        manifest = collect(Wanted(questions=(question,)), str(tmp_path / "out"))

        (file,) = manifest.files
        assert (tmp_path / "out" / file.file).read_bytes() == job().dump(1) == written.read_bytes()
    assert (file.place, file.truncated, manifest.notes) == ("pipe", None, ())


def test_a_slow_rank_is_waited_for_as_long_as_asked_and_then_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look of the source is cut short here, so that the rank is late for the first ones."""
    monkeypatch.setattr(pipes, "_PATIENCE_S", 0.05)
    with rank_with_pipe(tmp_path, 1, job().dump(1)):
        slow = collect(
            Wanted(questions=(ask_pipes(f"{tmp_path}/ask", (f"{tmp_path}/trace_",), 600.0),)), str(tmp_path / "slow")
        )
        never = collect(
            Wanted(questions=(ask_pipes(f"{tmp_path}/ask", (f"{tmp_path}/other_",), 0.3),)), str(tmp_path / "never")
        )

    assert len(slow.files) == 1
    assert (never.files, "no dump yet" in never.notes[0].text) == ((), True)


def test_a_pipe_that_nobody_reads_is_a_note(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ask0.pipe")
    question = ask_pipes(f"{tmp_path}/ask", (f"{tmp_path}/trace_",), 600.0)

    manifest = collect(Wanted(questions=(question,)), str(tmp_path / "out"))

    assert manifest.files == ()
    assert "nobody reads the pipe" in manifest.notes[0].text


def test_ranks_of_one_job_are_asked_through_the_pipes_they_name() -> None:
    named = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "ask", "TORCH_FR_DUMP_TEMP_FILE": "/d/trace_"}
    ranks = [LiveRank(1, 0, named, "/run", ()), LiveRank(2, 1, named, "/run", ()), LiveRank(3, 2, {}, "/run", ())]

    (source,) = find_pipes(ranks)

    assert (source._stem, source._prefixes) == ("/run/ask", ("/d/trace_",))


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[tuple[list[DebugWorker], list["subprocess.Popen[bytes]"]]]:
    """Three real ranks on gloo, each with torch's worker server."""
    folder = tmp_path / "job"
    folder.mkdir()
    running = [
        subprocess.Popen(
            [sys.executable, str(JOB), str(folder)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank)},
            start_new_session=True,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(3)
    ]
    ports = [folder / f"port_{rank}" for rank in range(3)]
    try:
        deadline = time.monotonic() + 600
        while not all(port.exists() for port in ports):
            assert time.monotonic() < deadline, "the job did not begin"
            time.sleep(0.1)
        yield (
            [DebugWorker(rank, SourceAddress("127.0.0.1", int(port.read_text()))) for rank, port in enumerate(ports)],
            running,
        )
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.mark.torch
@pytest.mark.sweep  # in make test a job that hangs is asked by collect: tests/attach/test_hanging_job.py
def test_debug_servers_of_a_real_job_give_dumps_and_stacks_and_the_job_goes_on(
    tmp_path: Path, ranks: tuple[list[DebugWorker], list["subprocess.Popen[bytes]"]]
) -> None:
    workers, running = ranks

    manifest = collect(Wanted(questions=(RankQuestion(DebugServer(workers, dated=False), 0.0),)), str(tmp_path / "out"))

    assert sorted(file.kind for file in manifest.files) == ["dump"] * 3 + ["stacks"] * 3
    assert [trace.rank for trace in read([str(tmp_path / "out")]).traces] == [0, 1, 2]
    assert [process.poll() for process in running] == [None] * 3
