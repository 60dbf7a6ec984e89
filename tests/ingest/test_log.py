"""What a log says about the failure, and whose words they are."""

from forkpoint.ingest.log import read_log
from forkpoint.model.capture import LogKind

WATCHDOG = (
    "[rank5]:[E1115 01:18:27.134150253 ProcessGroupNCCL.cpp:689] [Rank 1] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=16, OpType=ALLREDUCE, NumelIn=71178, NumelOut=71178, Timeout(ms)=20000) ran for 20091 "
    "milliseconds before timing out."
)


def test_the_prefix_names_the_global_rank_and_the_bracket_after_it_does_not() -> None:
    (event,) = read_log([WATCHDOG], "log", rank=None)

    assert (event.kind, event.rank, event.seq) == (LogKind.WATCHDOG_TIMEOUT, 5, 16)


def test_a_traceback_is_one_event_with_its_frames_innermost_first() -> None:
    lines = [
        "[rank3]: Traceback (most recent call last):",
        '[rank3]:   File "/train/train.py", line 72, in <module>',
        "[rank3]:     main()",
        '[rank3]:   File "/train/data.py", line 9, in load',
        "[rank3]:     raise CorruptSample(path)",
        "[rank3]: data.CorruptSample: bad magic",
    ]

    (event,) = read_log(lines, "log", rank=None)

    assert (event.kind, event.rank, event.line) == (LogKind.EXCEPTION, 3, 1)
    assert event.text == "data.CorruptSample: bad magic"
    assert [(f.name, f.line) for f in event.stack] == [("load", 9), ("<module>", 72)]


def test_interleaved_tracebacks_of_two_ranks_stay_apart() -> None:
    lines = [
        "[rank0]: Traceback (most recent call last):",
        "[rank1]: Traceback (most recent call last):",
        '[rank0]:   File "/train/a.py", line 1, in f',
        '[rank1]:   File "/train/b.py", line 2, in g',
        "[rank1]: KeyError: 'b'",
        "[rank0]: ValueError: a",
    ]

    events = list(read_log(lines, "log", rank=None))

    assert [(e.rank, e.text, e.stack[0].filename) for e in events] == [
        (1, "KeyError: 'b'", "/train/b.py"),
        (0, "ValueError: a", "/train/a.py"),
    ]


def test_lines_without_a_prefix_belong_to_the_files_rank() -> None:
    (event,) = read_log(["terminate: Signal 9 (SIGKILL) received by PID 7"], "log", rank=2)

    assert (event.kind, event.rank) == (LogKind.KILLED, 2)


def test_terminal_escapes_do_not_survive_reading() -> None:
    (event,) = read_log([f"\x1b[31m{WATCHDOG}\x1b]0;pwned\x07\x9b2J\u202e"], "log", rank=None)

    assert all(c.isprintable() for c in event.text)
    assert "\x1b" not in event.text


def test_an_ordinary_log_has_no_events() -> None:
    lines = ["step 10 loss 2.3", "2026-11-15 INFO Connection pool ready", "memory: 12 GB", "timeout=1800 s"]

    assert list(read_log(lines, "log", rank=0)) == []
