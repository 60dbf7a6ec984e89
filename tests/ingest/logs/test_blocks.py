"""What takes several lines, and stays together when ranks speak at once."""

import json

from forkpoint.evidence.logs import LogKind, read_log
from forkpoint.model.log import LogEvent

FRAMES = ['  File "/train/train.py", line 72, in <module>', "    main()", '  File "/train/data.py", line 9, in load']


def read_lines(*lines: str, rank: int | None = None) -> tuple[LogEvent, ...]:
    return read_log("\n".join(lines).encode(), "log", rank).events


def test_a_traceback_is_one_event_with_its_frames_innermost_first() -> None:
    (event,) = read_lines(
        *(
            f"[rank3]: {line}"
            for line in ["Traceback (most recent call last):", *FRAMES, "    raise CorruptSample(path)"]
        ),
        "[rank3]: data.CorruptSample: bad magic",
    )

    assert (event.kind, event.rank, event.line, event.exception) == (LogKind.EXCEPTION, 3, 1, "data.CorruptSample")
    assert event.text == "data.CorruptSample: bad magic"
    assert [(f.name, f.line) for f in event.stack] == [("load", 9), ("<module>", 72)]


def test_an_exception_that_is_known_has_its_kind_and_keeps_its_stack() -> None:
    (event,) = read_lines(
        "Traceback (most recent call last):",
        *FRAMES,
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.",
        rank=1,
    )

    assert (event.kind, event.rank, event.exception) == (LogKind.OUT_OF_MEMORY, 1, "torch.OutOfMemoryError")
    assert len(event.stack) == 2


def test_interleaved_tracebacks_and_cpp_lines_stay_apart() -> None:
    events = read_lines(
        "[rank0]: Traceback (most recent call last):",
        "[rank1]: Traceback (most recent call last):",
        '[rank0]:   File "/train/a.py", line 1, in f',
        "[rank0]:[I1115 01:18:30.9 ProcessGroupNCCL.cpp:1566] [PG ID 0 PG GUID 0 Rank 0] Launching abort.",
        '[rank1]:   File "/train/b.py", line 2, in g',
        "step 7 loss 2.1",
        "[rank1]: KeyError: 'b'",
        "[rank0]: ValueError: a",
    )

    assert [(e.rank, e.text, e.stack[0].filename) for e in events] == [
        (0, "ValueError: a", "/train/a.py"),
        (1, "KeyError: 'b'", "/train/b.py"),
    ]


def test_a_chain_of_exceptions_tells_how_they_hang_together() -> None:
    first, second = read_lines(
        "Traceback (most recent call last):",
        *FRAMES,
        "KeyError: 'x'",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        *FRAMES,
        "RuntimeError: cannot load",
        "done",
    )

    assert (first.detail("chain"), second.detail("chain")) == (None, "while another was handled")


def test_noise_between_a_traceback_and_its_exception_is_not_the_exception() -> None:
    (event,) = read_lines("Traceback (most recent call last):", *FRAMES, "INFO: saving", "ok", "ValueError: late")

    assert event.text == "ValueError: late"


def test_a_traceback_that_is_cut_is_still_told() -> None:
    (event,) = read_lines("Traceback (most recent call last):", *FRAMES)

    assert (event.exception, len(event.stack)) == (None, 2)


def test_the_reason_of_an_nccl_error_stays_with_it_though_its_lines_have_no_prefix() -> None:
    events = read_lines(
        "[rank0]:[E1115 01:18:31.5 ProcessGroupNCCL.cpp:612] [Rank 0] Collective WorkNCCL(SeqNum=14, OpType=ALLREDUCE, "
        "NumelIn=2128, NumelOut=2128, Timeout(ms)=20000) raised the following async exception: NCCL error: remote "
        "process exited or there was a network error, NCCL version 2.28.9",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
        "Last error:",
        "socketProgress: Connection closed by remote peer localhost<39204>",
        "Exception raised from checkForNCCLErrorsInternal at ProcessGroupNCCL.cpp:2770 (most recent call first):",
        "frame #0: c10::Error::Error() + 0x9d (0x7f in libc10.so)",
        "[rank1]: step 3",
    )

    assert [(e.kind, e.rank, e.seq) for e in events] == [(LogKind.ASYNC_ERROR, 0, 14)]
    assert events[0].detail("last_error") == "socketProgress: Connection closed by remote peer localhost<39204>"


def test_the_stack_of_a_collective_belongs_to_the_line_above_it() -> None:
    (event,) = read_lines(
        "[rank2]:[E1115 01:18:31.5 ProcessGroupNCCL.cpp:733] Stack trace of the failed collective: ",
        "#0 all_reduce from /torch/distributed_c10d.py:3068",
        "#1 step_once from /train/train.py:40",
        "",
        "#2 other from /train/other.py:1",
    )

    assert (event.kind, event.rank, [f.name for f in event.stack]) == (
        LogKind.COLLECTIVE_STACK,
        2,
        ["all_reduce", "step_once"],
    )


def test_an_agents_table_names_ranks_and_calls_none_of_them_guilty() -> None:
    events = read_lines(
        "Traceback (most recent call last):",
        *FRAMES,
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "============================================================",
        "train.py FAILED",
        "------------------------------------------------------------",
        "Failures:",
        "[1]:",
        "  time      : 2024-07-26_10:59:45",
        "  host      : node-95",
        "  rank      : 10 (local_rank: 2)",
        "  exitcode  : -15 (pid: 214035)",
        "  error_file: <N/A>",
        "  traceback : Signal 15 (SIGTERM) received by PID 214035",
        "------------------------------------------------------------",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2024-07-26_10:59:44",
        "  host      : node-95",
        "  rank      : 8 (local_rank: 0)",
        "  exitcode  : -6 (pid: 214033)",
        "  error_file: /tmp/torchelastic/attempt_0/0/error.json",
        "  traceback : Signal 6 (SIGABRT) received by PID 214033",
        "============================================================",
        "srun: error: node-95: task 0: Exited with exit code 1",
    )
    agent, *told, slurm = events

    assert (agent.exception or "").endswith("ChildFailedError")
    assert agent.rank is None
    assert [(e.kind, e.rank, e.detail("root"), e.detail("code"), e.detail("signal")) for e in told] == [
        (LogKind.AGENT_FAILURE, 10, "no", "-15", "SIGTERM"),
        (LogKind.AGENT_FAILURE, 8, "yes", "-6", "SIGABRT"),
    ]
    assert [e.time for e in told] == ["2024-07-26_10:59:45", "2024-07-26_10:59:44"]
    assert (slurm.kind, slurm.rank) == (LogKind.EXITED, None)


def test_an_error_file_gives_the_exception_and_its_stack() -> None:
    callstack = "\n".join(["Traceback (most recent call last):", *FRAMES, "RuntimeError: boom", ""])
    content = {"message": {"message": "RuntimeError: boom", "extraInfo": {"py_callstack": callstack, "timestamp": "1"}}}

    (event,) = read_log(json.dumps(content).encode(), "error.json", None).events

    assert (event.kind, event.text, event.exception) == (LogKind.EXCEPTION, "RuntimeError: boom", "RuntimeError")
    assert [f.name for f in event.stack] == ["load", "<module>"]


def test_a_crash_is_followed_by_the_threads_stacks() -> None:
    events = read_lines(
        "Fatal Python error: Segmentation fault",
        "",
        "Thread 0x00007f42563bb6c0 [loader] (most recent call first):",
        '  File "/train/data.py", line 6 in fetch',
        "",
        "Current thread 0x00007f4256e22b80 (most recent call first):",
        '  File "/train/train.py", line 9 in step',
        '  File "/train/train.py", line 20 in main',
        "Extension modules: numpy._core (total: 1)",
        rank=4,
    )

    assert [(e.kind, [f.name for f in e.stack], e.detail("current")) for e in events] == [
        (LogKind.CRASHED, [], None),
        (LogKind.STACK, ["fetch"], "Thread"),
        (LogKind.STACK, ["step", "main"], "Current thread"),
    ]


def test_the_exit_code_of_a_pod_is_with_its_reason() -> None:
    (event,) = read_lines("    Last State:     Terminated", "      Reason:       OOMKilled", "      Exit Code:    137")

    assert (event.kind, event.rank, event.detail("code")) == (LogKind.OUT_OF_MEMORY, None, "137")


def test_gloo_says_that_sizes_differ() -> None:
    (event,) = read_lines(
        "[rank1]: RuntimeError: [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:446] "
        "op.preamble.length <= op.nbytes. 8 vs 4"
    )

    assert (event.kind, event.detail("sent"), event.detail("expected")) == (LogKind.SIZES_DIFFER, "8", "4")


def test_what_another_prints_between_is_not_the_exception() -> None:
    log = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\nloss: 2.1\nqueue.Empty\n'
    (event,) = read_log(log.encode(), "log", None).events

    assert event.exception != "loss"


def test_the_exceptions_of_old_modules_are_written_small_and_other_small_words_are_none() -> None:
    (old,) = read_lines(
        "Traceback (most recent call last):", *FRAMES, "zlib.error: Error -3 while decompressing", rank=1
    )
    (cut,) = read_lines("Traceback (most recent call last):", *FRAMES, "eval.loss: 2.1", rank=1)

    assert (old.kind, old.exception) == (LogKind.EXCEPTION, "zlib.error")
    assert cut.exception is None


def test_a_log_that_begins_inside_a_traceback_still_tells_its_exception() -> None:
    (event,) = read_lines("uts)", "       ^^^^^", *FRAMES, "ValueError: no label", "bye", rank=3)

    assert (event.kind, event.rank, event.exception) == (LogKind.EXCEPTION, 3, "ValueError")
    assert [(f.name, f.line) for f in event.stack] == [("load", 9), ("<module>", 72)]


def test_frames_without_an_exception_or_further_on_are_no_traceback() -> None:
    assert read_lines(*FRAMES, "step 3", rank=3) == ()
    assert read_lines(*(f"step {n}" for n in range(9)), *FRAMES, "ValueError: shown, not raised", rank=3) == ()
    stack = ['  File "/train/data.py", line 9 in load', '  File "/train/train.py", line 72 in <module>']
    assert all(event.exception is None for event in read_lines(*stack, "ValueError: of somebody else", rank=3))
