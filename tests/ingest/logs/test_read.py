"""One log as a whole: who spoke, what was kept, and that it does not matter how it is read."""

import io
import shutil
import tracemalloc
from pathlib import Path

import pytest

from forkpoint.evidence.logs import LeftOut, LogKind, LogReading, events, read, read_log, search, speakers
from forkpoint.evidence.logs.speakers import LogSpeakers

HIT = b"[rank%d]:[E1115 01:18:27.1 ProcessGroupNCCL.cpp:1] First PG on this rank to signal dumping.\n"
ORDINARY = b"[rank%d]: 2026-11-15 01:02:03,123 INFO step %d loss 2.31 shard %x\n"


def big_log(size: int) -> bytes:
    """Some lines that say something among many that do not, those of rank 7 only in the middle."""
    lines: list[bytes] = []
    for number in range(size // 60):
        rank = number % 6
        lines.append(HIT % rank if number % 5000 == 17 else ORDINARY % (rank, number, number * 7919))
    lines.insert(len(lines) // 2, ORDINARY % (7, 0, 0))
    return b"".join(lines)


def test_an_ordinary_log_has_no_events() -> None:
    lines = ["step 10 loss 2.3", "2026-11-15 INFO Connection pool ready", "memory: 12 GB", "timeout=1800 s"]
    reading = read_log("\n".join(lines).encode(), "log", 0)

    assert (reading.events, reading.lines, reading.speakers) == ((), 4, frozenset())


def test_an_empty_log_has_no_speaker() -> None:
    assert read_log(b"", "log", 3) == LogReading((), frozenset(), None, None, 0, 0)


def test_terminal_escapes_do_not_survive_reading() -> None:
    (event,) = read_log(f"\x1b[31m{(HIT % 1).decode()}\x1b]0;pwned\x07\x9b2J\u202e".encode(), "log", None).events

    assert all(character.isprintable() for character in event.text)


def test_first_and_last_time_are_as_printed_without_fractions() -> None:
    reading = read_log(b"hello\n" + HIT % 0 + b"[rank0]:[I1115 01:18:29.9 x.cpp:1] bye\nend\n", "log", None)

    assert (reading.first_time, reading.last_time) == ("1115 01:18:27", "1115 01:18:29")


def test_those_who_spoke_are_named_and_those_who_did_not_are_not() -> None:
    log = (
        b"".join(ORDINARY % (rank, 1, 1) for rank in range(100) if rank not in {3, 41, 77}) + b"say '[rank3]: hello'\n"
    )

    assert read_log(log, "log", None).speakers == frozenset(range(100)) - {3, 41, 77}


def test_a_rank_that_spoke_once_in_a_long_log_is_not_called_silent() -> None:
    heard = LogSpeakers(once=False)
    log = b"".join(ORDINARY % (rank % 6, 1, 1) for rank in range(1000))
    chunks = [log] * 400
    chunks[301] = log + ORDINARY % (7, 0, 0)
    for chunk in chunks:
        heard.feed(chunk)
    assert heard.ranks == {0, 1, 2, 3, 4, 5}

    heard.finish(io.BytesIO(b"".join(chunks)), world=9)

    assert heard.ranks == {0, 1, 2, 3, 4, 5, 7}


def test_many_events_of_a_kind_are_bounded_and_the_rest_counted() -> None:
    reading = read_log(HIT % 2 * 1000, "log", None)

    assert len(reading.events) == 50
    assert (reading.events[0].line, reading.events[-1].line) == (1, 1000)
    assert reading.left_out == (LeftOut(LogKind.DUMP_SIGNAL, 2, 950),)


def test_bytes_a_file_and_a_pipe_give_the_same(tmp_path: Path) -> None:
    log = big_log(1 << 21)
    path = tmp_path / "log"
    path.write_bytes(log)
    expected = read_log(log, "log", None)
    pipe = io.BytesIO(log)
    pipe.seekable = lambda: False  # type: ignore[method-assign]

    with path.open("rb") as file:
        assert read_log(file, "log", None) == expected
    assert read_log(pipe, "log", None) == expected
    assert expected.speakers == {0, 1, 2, 3, 4, 5, 7}
    assert (expected.lines, expected.bytes) == (log.count(b"\n"), len(log))


def test_it_does_not_matter_where_a_log_is_cut_into_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    traceback = (
        b'[rank1]: Traceback (most recent call last):\n[rank1]:   File "a.py", line 1, in f\n[rank1]: KeyError: 1\n'
    )
    log = (ORDINARY % (1, 2, 3) + HIT % 2 + traceback) * 30
    expected = read_log(log, "log", None)
    for size in (1, 7, 64, 999):
        monkeypatch.setattr(read, "CHUNK", size)
        assert read_log(log, "log", None).events == expected.events


def test_lines_that_never_repeat_are_searched_as_well() -> None:
    words = [f"{chr(97 + a)}{chr(97 + b)}{chr(97 + c)}" for a in range(26) for b in range(26) for c in range(26)]
    line = HIT % 5
    log = "\n".join(f"{a} {b} {c}" for a in words[:40] for b in words[:40] for c in words[:80]).encode()
    places = [0, len(log) // 2, len(log) - 100]
    for place in places:
        cut = log.index(b"\n", place) + 1
        log = log[:cut] + line + log[cut:]

    assert len(read_log(log, "log", None).events) == 3


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
def test_with_and_without_ripgrep_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = big_log(1 << 21) + b"[rank2]: Traceback (most recent call last):\n" + ORDINARY % (1, 1, 1)
    log += b'[rank2]:   File "a.py", line 1, in f\n[rank2]: KeyError: 1\n' + HIT % 3 + b"no newline at the end"
    path = tmp_path / "log"
    path.write_bytes(log)
    monkeypatch.setattr(search, "WORTH_IT", 0)

    with path.open("rb") as file:
        assert read_log(file, "log", None) == read_log(log, "log", None)


def test_a_ripgrep_that_fails_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(HIT % 1)
    broken = tmp_path / "rg"
    broken.write_text("#!/bin/sh\nexit 2\n")
    broken.chmod(0o755)
    monkeypatch.setattr(search, "WORTH_IT", 0)
    monkeypatch.setattr(read, "ripgrep", lambda: str(broken))

    with path.open("rb") as file:
        assert [event.rank for event in read_log(file, "log", None).events] == [1]


def test_a_huge_rank_or_world_is_not_counted_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speakers, "_ALL_UP_TO", 0)
    log = b"[rank9999999]: hello\n" + b"[rank2]: hello\n" * 300_000

    tracemalloc.start()
    reading = read_log(log, "log", None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert reading.speakers == {2, 9999999}
    assert peak < 20_000_000


def test_speakers_that_all_begin_a_traceback_are_not_all_remembered() -> None:
    log = b"".join(b"(W pid=%d) Traceback (most recent call last):\n" % number for number in range(15_000))

    tracemalloc.start()
    read_log(log, "log", None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 15_000_000


def test_what_has_no_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_LOUD_AT_MOST", 5)
    reading = read_log(b"".join(HIT % rank for rank in range(9)), "log", None)

    assert len(reading.events) == 5
    assert [problem.text for problem in reading.problems if "4 were left out" in problem.text]


def test_a_node_s_log_is_no_rank_s_whatever_its_name_says() -> None:
    line = b"[default%d]:RuntimeError: CUDA error: device-side assert triggered\n"
    alone = read_log(line % 1, "rank1.log", 1)
    node = read_log(line % 1 + line % 2, "rank1.log", 1)

    assert [event.rank for event in alone.events] == [1]
    assert [event.rank for event in node.events] == [None, None]
