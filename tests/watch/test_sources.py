"""Each source against what it may meet: those who hang, flood, lie, or answer as they should."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from forkpoint.errors import UsageError
from forkpoint.evidence import read
from forkpoint.live.watch.sources import Spool, ask, pipes
from forkpoint.live.watch.sources.ask import Ras, SourceAddress, parse_address
from forkpoint.live.watch.sources.debug_server import DebugServer, DebugWorker, parse_workers
from forkpoint.live.watch.sources.paths import Paths
from forkpoint.live.watch.sources.pipes import Pipes
from forkpoint.model.log import LogKind
from ingest.machine import answers
from small_jobs import SmallJob
from watch.others import Answer, answering, drips

WATCHDOG = (
    "[rank3]:[E1115 01:18:27.134150253 ProcessGroupNCCL.cpp:689] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=9, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600019 milliseconds before "
    "timing out.\n"
)


@pytest.fixture(autouse=True)
def _answers_may_take_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask.ask, "__defaults__", (600.0,))


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(str(tmp_path / "spool"))


def says(data: bytes) -> Answer:
    return lambda connection: connection.sendall(data)


def hangs(connection: socket.socket) -> None:
    connection.recv(1)


def floods(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b"[" * (1 << 20))


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (hangs, "no complete answer within 0.3 s"),
        (drips, "no complete answer within 0.3 s"),
        (floods, "longer than 64 kB"),
        (says(b"\x00\xff garbage\r\n\r\n"), "not HTTP"),
        (says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut"), "not HTTP, or is truncated"),
        (says(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\n\r\n"), "status 302"),
        (says(b'HTTP/1.1 200 OK\r\n\r\n["fr_trace_json"]'), "not a dump"),
        (says(b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 60000), "not a dump"),
    ],
)
def test_whoever_answers_a_worker_s_address_is_bounded_and_noted(
    answer: Answer, note: str, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "within" in note:
        monkeypatch.setattr(ask.ask, "__defaults__", (0.3,))
    with answering(answer) as address:
        gathered = DebugServer([DebugWorker(3, address)], dated=False).gather(spool, stacks=True)

    assert gathered.dumps == ()
    assert gathered.notes[0].startswith(f"rank 3 at {address}: ")
    assert note in gathered.notes[0]


def test_a_worker_that_is_gone_is_noted_and_many_are_one_note(spool: Spool) -> None:
    with answering(hangs) as address:
        pass
    gathered = DebugServer([DebugWorker(rank, address) for rank in range(4)], dated=False).gather(spool, stacks=False)

    assert gathered.notes == ("ranks 0-3: cannot be reached (Connection refused)",)


def test_a_frontend_names_the_workers_and_the_size_of_the_job(spool: Spool) -> None:
    job = SmallJob(2)
    job.op()
    with answering(says(b"HTTP/1.1 200 OK\r\n\r\n" + job.dump(1))) as one:
        page = f"<h2>Rank 0: http://{one}/handler/wait_counter_values?</h2><h2>Rank 1: http://{one}/handler/x?</h2>"
        with answering(says(f"HTTP/1.0 200 OK\r\n\r\n{page}".encode())) as frontend:
            source = DebugServer(frontend=frontend, dated=False)
            gathered = source.gather(spool, stacks=False)

    assert gathered.world_size == 2
    assert [Path(dump.path).name for dump in gathered.dumps] == ["rank_0.pickle", "rank_1.pickle"]


def test_a_frontend_that_is_not_there_is_a_note(spool: Spool) -> None:
    with answering(hangs) as address:
        pass

    gathered = DebugServer(frontend=address, dated=False).gather(spool, stacks=False)

    assert gathered.notes == (f"frontend {address}: cannot be reached (Connection refused)",)


def test_workers_are_given_in_the_order_of_ranks_or_by_rank() -> None:
    assert [w.rank for w in parse_workers(["a:1", "b:2"])] == [0, 1]
    assert [w.rank for w in parse_workers(["7=[::1]:1", "3=/run/rank.sock"])] == [7, 3]
    assert parse_address("[::1]:80") == SourceAddress("::1", 80)
    for wrong in (["a"], ["a:0"], ["a:99999"], ["x=a:1"], ["0=a:1", "0=b:1"]):
        with pytest.raises(UsageError):
            parse_workers(wrong)


def test_ras_is_asked_only_when_nothing_moves_and_its_answer_is_evidence(spool: Spool) -> None:
    with answering(says(answers.FEW_BEHIND.encode())) as address:
        source = Ras(address)
        idle = source.gather(spool, stacks=False)
        asked = source.gather(spool, stacks=True)

    assert idle.stacks == ()
    assert asked.notes == ()
    assert {remark.kind for remark in read(asked.stacks).remarks} == {"ras"}


def test_something_else_at_the_port_of_ras_is_a_note(spool: Spool) -> None:
    with answering(says(b"SSH-2.0-OpenSSH_9.6\r\n")) as address:
        gathered = Ras(address).gather(spool, stacks=True)

    assert gathered.notes == (f"{address}: its answer is not a RAS report",)


@contextmanager
def rank_with_pipe(folder: Path, rank: int, dump: bytes) -> Iterator[Path]:
    """As torch does it: reads the pipe without blocking, and writes the dump in pieces."""
    pipe, written, stop = folder / f"ask{rank}.pipe", folder / f"trace_{rank}", Event()
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def dump_when_told() -> None:
        while not stop.wait(0.01):
            if os.read(reader, 1):
                with written.open("wb", buffering=0) as file:
                    file.write(dump[: len(dump) // 2])
                    stop.wait(0.3)
                    file.write(dump[len(dump) // 2 :])

    thread = Thread(target=dump_when_told)
    thread.start()
    try:
        yield written
    finally:
        stop.set()
        thread.join(10)
        os.close(reader)


def test_a_byte_in_the_pipe_brings_a_whole_dump_which_stays_where_it_is(
    tmp_path: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "_PATIENCE_S", 600.0)
    job = SmallJob(2)
    job.op()
    with rank_with_pipe(tmp_path, 1, job.dump(1)) as written:
        (tmp_path / "trace_1").write_bytes(b"of an earlier incident")
        gathered = Pipes(f"{tmp_path}/ask", (f"{tmp_path}/trace_",)).gather(spool, stacks=False)

        assert written.read_bytes() == job.dump(1)
    assert [Path(dump.path).read_bytes() for dump in gathered.dumps] == [job.dump(1)]
    assert gathered.notes == ()


def test_a_pipe_that_nobody_reads_and_a_file_in_its_place_are_noted_and_left_alone(
    tmp_path: Path, spool: Spool
) -> None:
    os.mkfifo(tmp_path / "ask0.pipe")
    (tmp_path / "ask1.pipe").write_text("a file")
    gathered = Pipes(f"{tmp_path}/ask", (f"{tmp_path}/trace_",)).gather(spool, stacks=False)

    assert [note.partition(": ")[2] for note in gathered.notes] == [
        "is not a pipe",
        "nobody reads the pipe (No such device or address): has the rank ended?",
    ]
    assert (tmp_path / "ask1.pipe").read_text() == "a file"


def test_a_rank_that_never_dumps_is_waited_for_only_a_while(
    tmp_path: Path, spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipes, "_PATIENCE_S", 0.2)
    with rank_with_pipe(tmp_path, 0, b"not a dump"):
        gathered = Pipes(f"{tmp_path}/ask", (f"{tmp_path}/trace_",)).gather(spool, stacks=False)

    assert gathered.dumps == ()
    assert "no dump yet" in gathered.notes[0]


def test_of_a_log_only_what_was_added_is_read(tmp_path: Path, spool: Spool) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1\n" * 20_000 + WATCHDOG + "step 2\n" * 20_000)
    source = Paths([str(tmp_path)])
    first = source.gather(spool, stacks=False)
    same = source.gather(spool, stacks=False)
    with log.open("a") as file:
        file.write("step 3\n[rank3]:[E1115 01:18:27.134150253 ProcessGroup")
    half = source.gather(spool, stacks=False)
    with log.open("a") as file:
        file.write(WATCHDOG[WATCHDOG.index("NCCL.cpp") :])
    whole = source.gather(spool, stacks=False)

    assert [event.kind for event in first.said] == [LogKind.WATCHDOG_TIMEOUT]
    assert (same.said, same.has_grown) == ((), False)
    assert (half.said, half.has_grown) == ((), True)
    assert [(event.kind, event.rank) for event in whole.said] == [(LogKind.WATCHDOG_TIMEOUT, 3)]
    assert whole.texts == (str(log),)


def test_a_log_that_is_begun_anew_is_read_from_its_start(tmp_path: Path, spool: Spool) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1\n" * 1000)
    source = Paths([str(log)])
    source.gather(spool, stacks=False)
    log.write_text(WATCHDOG)

    assert source.gather(spool, stacks=False).said


def test_dumps_are_told_from_logs_by_what_they_hold_and_the_spool_is_left_out(tmp_path: Path, spool: Spool) -> None:
    job = SmallJob(1)
    job.op()
    (tmp_path / "rank_0.log").write_bytes(job.dump(0))
    (tmp_path / "out").write_text("step 1\n")
    spool.put("rank_9", job.dump(0))
    gathered = Paths([str(tmp_path), str(tmp_path / "later")]).gather(spool, stacks=False)

    assert [Path(dump.path).name for dump in gathered.dumps] == ["rank_0.log"]
    assert [Path(text).name for text in gathered.texts] == ["out"]
    assert gathered.notes == (f"{tmp_path}/later: not there yet",)
