"""Every format of live stacks, as the tools wrote them."""

import json

import pytest

from forkpoint.evidence.stacks.read import looks_like_stacks, read_live_stacks
from forkpoint.evidence.stacks.threads import MAX_FRAMES, MAX_THREADS, ThreadKind
from forkpoint.model.op import Frame
from ingest.live_stacks.recorded import SAMPLES, names, read_one, recorded
from looping import for_each

HEADER = "Current thread 0x00007f9dcec21140 (most recent call first):\n"


def kinds(name: str) -> list[str]:
    return [thread.kind.value for thread in read_one(name).threads]


@for_each("path", sorted(SAMPLES.iterdir()), ids=lambda path: path.name)
def test_a_recorded_file_is_taken_for_stacks_by_its_beginning(path) -> None:
    assert looks_like_stacks(path.read_text()[:4096])


@for_each("path", sorted(SAMPLES.iterdir()), ids=lambda path: path.name)
def test_the_main_thread_of_a_recorded_file_is_the_one_that_runs_the_program(path) -> None:
    for stacks in read_live_stacks(path.read_text(), path.name, 0):
        assert stacks.main is not None
        assert [t.kind for t in stacks.threads].count(ThreadKind.MAIN) == 1
        assert stacks.main.stack[-1].name in {"<module>", "??", "_start"}


def test_a_log_with_stacks_in_its_middle_is_still_a_log() -> None:
    text = recorded("faulthandler_3_11.txt")

    assert not looks_like_stacks(f"step 1\nstep 2\n{text}")
    assert [s.rank for s in read_live_stacks(f"step 1\nstep 2\n{text}", "log", 2)] == [2]


@for_each(
    "text",
    [
        "",
        "[rank0]:[E1115 01:24:50.9 ProcessGroupNCCL.cpp:2303] failure detected by watchdog\n",
        '{"thread_id": 1, "frames": []}\n',
        "Call Stack (most recent call first):\n  CMakeLists.txt:9 (find_package)\n",
        'Traceback (most recent call last):\n  File "train.py", line 3, in main\n',
        "=== Rank 0: http://node-1:48079/handler/fr_trace_json? ===\n{}\n",
        "#0 all_gather from /env/torch/distributed/distributed_c10d.py:4186\n#1 main from /train/train.py:39\n",
    ],
)
def test_other_text_is_not_taken_for_stacks(text: str) -> None:
    assert not looks_like_stacks(text)
    assert read_live_stacks(text, "x", 0) == ()


class TestFaulthandler:
    @pytest.mark.parametrize("name", ["faulthandler_3_11.txt", "faulthandler_3_13.txt"])
    def test_threads_are_read_with_their_lines_innermost_frame_first(self, name) -> None:
        stacks = read_one(name)

        assert stacks.rank == 3
        assert names(stacks.threads[2])[:3] == ["wait", "wait", "upload"]
        assert stacks.main is stacks.threads[-1]
        assert recorded(name).splitlines()[stacks.main.line - 1].startswith("Current thread")
        assert stacks.main.stack[0] == Frame("main", "/train/train.py", 27)

    def test_names_and_the_c_stack_of_python_3_14_belong_to_their_thread(self) -> None:
        # Not recorded: written after Python/traceback.c of 3.14.
        text = (
            "Fatal Python error: Aborted\n\n"
            "Thread 0x00007f01 [pt_nccl_watchdg] (most recent call first):\n  <no Python frame>\n\n"
            "Thread 0x00007f02 [pt_autograd_0] (most recent call first):\n"
            '  File "/train/hooks.py", line 4 in hook\n\n'
            'Current thread 0x00007f03 [python3.14] (most recent call first):\n  File "/train/train.py", line 7 in <module>\n\n'
            "Current thread's C stack trace (most recent call first):\n"
            '  Binary file "/lib/libcudart.so.12", at cudaStreamSynchronize+0x48 [0x7f0000000001]\n'
            '  Binary file "/usr/lib/libpython3.14.so.1.0", at _PyEval_EvalFrameDefault+0x1d [0x7f0000000002]\n'
            '  Binary file "/usr/bin/python3.14" [0x55]\n  <truncated rest of calls>\n'
        )
        (stacks,) = read_live_stacks(text, "log", 0)

        assert not looks_like_stacks(text), "a program that died says so in its log"
        assert [t.kind.value for t in stacks.threads] == ["watchdog", "autograd", "main"]
        assert [t.name for t in stacks.threads] == ["pt_nccl_watchdg", "pt_autograd_0", "python3.14"]
        assert stacks.main is not None
        assert stacks.main.stack == (
            Frame("cudaStreamSynchronize", "/lib/libcudart.so.12", 0),
            Frame("<module>", "/train/train.py", 7),
        )

    def test_a_script_without_a_suffix_is_python_too(self) -> None:
        (stacks,) = read_live_stacks(f'{HEADER}  File "/opt/env/bin/torchrun", line 8 in <module>\n', "x", 0)

        assert stacks.main is not None

    def test_a_thread_that_collects_garbage_says_so(self) -> None:
        (stacks,) = read_live_stacks(f'{HEADER}  Garbage-collecting\n  File "t.py", line 3 in <module>\n', "x", 0)

        assert stacks.threads[0].state == "garbage-collecting"

    def test_a_deep_stack_is_main_only_where_the_signal_found_it(self) -> None:
        # Python 3.13 stops after 100 frames without a word; 3.12 adds `...`.
        frames = '  File "/env/lib/python3.13/site-packages/sympy/a.py", line 1 in <module>\n' * 100

        (asked,) = read_live_stacks(HEADER + frames, "x", 0)
        (other,) = read_live_stacks(HEADER.replace("Current thread", "Thread") + frames + "  ...\n", "x", 0)

        assert asked.main is not None
        assert other.main is None

    def test_a_file_cut_in_a_helper_thread_has_no_main_thread(self) -> None:
        text = recorded("faulthandler_3_11.txt")
        (stacks,) = read_live_stacks(text[: text.index("Current thread")], "x", 0)

        assert stacks.main is None
        assert stacks.stack == ()

    def test_of_several_dumps_in_one_file_the_last_with_a_main_thread_counts(self) -> None:
        first = recorded("faulthandler_3_11.txt")
        second = first.replace("line 27 in main", "line 99 in main")
        begun = first[: first.index("Current thread")]
        (stacks,) = read_live_stacks(f"{first}\n{second}\n{begun}", "x", 0)

        assert len(stacks.threads) == 4
        assert stacks.main is not None
        assert stacks.main.stack[0].line == 99

    def test_a_dump_without_any_frame_gives_no_rank(self) -> None:
        assert read_live_stacks(f"{HEADER}  <no Python frame>\n", "x", 4) == ()


MAIN_THREAD = HEADER + '  File "/train/train.py", line {} in <module>\n'


@for_each(
    "heading",
    ["# rank {} pid 26262", "--- rank {} ---", "=== Rank {}: http://node-1:48079/ ===", "## [rank{}]", "> rank-{}"],
)
def test_a_heading_tells_whose_stack_follows_it(heading: str) -> None:
    text = "".join(f"{heading.format(rank)}\n{MAIN_THREAD.format(10 + rank)}\n" for rank in (0, 3))

    assert looks_like_stacks(text)
    assert {s.rank: s.stack[0].line for s in read_live_stacks(text, "stacks.txt", None)} == {0: 10, 3: 13}


@for_each("heading", ["# local_rank {}", "=== Rank -{}: x ===", "rank {}", "# ranks {}", "# rank {}th"])
def test_what_only_looks_like_a_heading_tells_nothing(heading: str) -> None:
    text = f"{heading.format(3)}\n{MAIN_THREAD.format(10)}"

    assert {s.rank for s in read_live_stacks(text, "stacks.txt", None)} == {None}


class TestPySpy:
    @pytest.mark.parametrize("name", ["py_spy.txt", "py_spy_3_13.txt", "py_spy_locals.txt"])
    def test_states_names_and_the_gil_are_read_and_values_of_locals_are_not(self, name) -> None:
        stacks = read_one(name)

        assert [(t.name, t.state, t.holds_gil) for t in stacks.threads] == [
            ("MainThread", "idle", False),
            ("uploader", "idle", False),
            ("QueueFeederThread", "idle", False),
            ("Thread-1 (listen)", "idle", False),
            ("spinner", "active", True),
        ]
        assert kinds(name) == ["main", "other", "loader", "other", "other"]
        assert stacks.main is not None
        assert stacks.main.stack == (Frame("main", "train.py", 29), Frame("<module>", "train.py", 31))

    def test_native_frames_have_a_library_and_no_line(self) -> None:
        main = read_one("py_spy_native.txt").main

        assert main is not None
        assert main.stack[:2] == (Frame("pause", "libc.so.6", 0), Frame("??", "libffi.so.8.1.2", 0))
        assert main.stack[-2] == Frame("<module>", "train.py", 31)

    def test_a_long_native_name_with_parentheses_keeps_its_library(self) -> None:
        main = read_one("py_spy_native_barrier.txt").main

        assert main is not None
        assert main.stack[4].filename == "libtorch_python.so"
        assert main.stack[6] == Frame("barrier", "torch/distributed/distributed_c10d.py", 5356)

    def test_a_loader_s_worker_process_is_not_the_rank_s_main_thread(self) -> None:
        stacks = read_one("py_spy_subprocesses.txt")

        assert [t.name for t in stacks.threads].count("MainThread") == 2
        assert stacks.main is stacks.threads[0]
        assert stacks.threads[2].kind is ThreadKind.LOADER

    def test_threads_without_a_name_or_a_process_line_are_read(self) -> None:
        (stacks,) = read_live_stacks(
            "Thread 0x7F0A1C (active)\n    main (train.py:3)\n    <module> (train.py:9)\n", "x", 1
        )

        assert stacks.main is not None
        assert stacks.main.name is None

    def test_json_says_the_same_with_whole_paths(self) -> None:
        stacks = read_one("py_spy.json")
        by_name = {t.name: t for t in stacks.threads}

        assert stacks.main is by_name["MainThread"]
        assert stacks.main.stack == (Frame("main", "/train/train.py", 29), Frame("<module>", "/train/train.py", 31))
        assert (by_name["spinner"].state, by_name["spinner"].holds_gil) == ("active", True)
        lines = recorded("py_spy.json").splitlines()
        assert all('"thread_id"' in lines[t.line - 1] for t in stacks.threads)

    @pytest.mark.parametrize(
        "threads",
        [
            [None, 7, [], {"thread_id": 1}, {"thread_id": 1, "frames": [1, {"name": 3, "filename": "x"}]}],
            [{"thread_id": 1, "frames": {}}],
            [{"thread_id": 1, "frames": [{"name": "f", "filename": None, "line": 3}]}],
        ],
    )
    def test_json_of_another_form_gives_nothing(self, threads) -> None:
        assert read_live_stacks(json.dumps(threads), "x", 0) == ()

    @pytest.mark.parametrize("text", ['[{"thread_id": 1, "frames": [', "[" * 100_000 + '"thread_id" "frames"'])
    def test_json_that_was_cut_or_nested_to_death_gives_nothing(self, text) -> None:
        assert read_live_stacks(text, "x", 0) == ()

    def test_json_with_an_absurd_line_keeps_the_frame_without_it(self) -> None:
        text = json.dumps([{"thread_id": 1, "frames": [{"name": "f", "filename": "x.py", "line": 10**30}]}])

        assert read_live_stacks(text, "x", 0)[0].threads[0].stack == (Frame("f", "x.py", 0),)


class TestGdb:
    def test_native_frames_are_read_with_their_library_or_source(self) -> None:
        stacks = read_one("gdb_bt_barrier.txt")
        main = stacks.main

        assert [t.name for t in stacks.threads][-2:] == ["pt_tcpstore_uv", "python"]
        assert main is not None
        assert main.stack[5] == Frame("std::condition_variable::wait", "/lib/x86_64-linux-gnu/libstdc++.so.6", 0)
        assert main.stack[6].name == "c10d::Work::wait"
        assert main.stack[4] == Frame("___pthread_cond_wait", "./nptl/pthread_cond_wait.c", 618)

    def test_python_and_native_views_of_a_thread_become_one_stack(self) -> None:
        stacks = read_one("gdb_py_bt_and_bt.txt")

        assert len(stacks.threads) == 2
        assert names(stacks.main)[:2] == ["__libc_pause", "??"]
        assert names(stacks.main)[-2:] == ["main", "<module>"]
        assert "PyThread_acquire_lock_timed" in names(stacks.threads[0])
        assert "_PyEval_EvalFrameDefault" not in names(stacks.threads[0])

    def test_a_frame_that_the_terminal_wrapped_is_one_frame(self) -> None:
        text = (
            "Thread 58 (Thread 0x15535d20d700 (LWP 1823817)):\n"
            "#0  0x000015551cd02434 in ?? () from /lib64/libcuda.so.1\n"
            "#1  0x000015551e63c2e8 in cudaStreamSynchronize ()\n   from /env/nvidia/lib/libcudart.so.12\n"
            "#2  0x00001554fb47f4d2 in at::native::copy(at::Tensor const&)::{lambda()#1}::operator()() const ()\n"
        )
        (stacks,) = read_live_stacks(text, "x", 0)

        assert stacks.threads[0].stack == (
            Frame("??", "/lib64/libcuda.so.1", 0),
            Frame("cudaStreamSynchronize", "/env/nvidia/lib/libcudart.so.12", 0),
            Frame("at::native::copy", "", 0),
        )

    def test_frames_of_older_pythons_are_found_in_the_arguments_of_native_ones(self) -> None:
        text = (
            "#0  0x00007f01 in accept4 (fd=3) at ../sysdeps/accept4.c:31\n"
            "#1  0x00007f02 in _PyEval_EvalFrameDefault (f=Frame 0x7f0b, for file /train/train.py, line 29, in main (how=3), throwflag=0) at Python/ceval.c:1\n"
            "#2  0x00007f03 in _PyEval_EvalFrameDefault (f=Frame 0x7f0c, for file /train/train.py, line 31, in <module> (), throwflag=0) at Python/ceval.c:1\n"
        )
        (stacks,) = read_live_stacks(text, "x", 0)

        assert names(stacks.main) == ["accept4", "main", "<module>"]

    def test_names_of_torch_s_threads_tell_their_kind(self) -> None:
        thread = (
            'Thread {n} (Thread 0x7f0{n} (LWP 10{n}) "{name}"):\n#0  0x00007f01 in poll () from /lib64/libc.so.6\n\n'
        )
        found = ["pt_autograd_0", "pt_nccl_watchdg", "pt_nccl_heartbt", "pt_data_pin", "cuda00006000019"]
        text = "".join(thread.format(n=n, name=name) for n, name in enumerate(found, 1))
        (stacks,) = read_live_stacks(text, "x", 0)

        assert [t.kind.value for t in stacks.threads] == ["autograd", "watchdog", "watchdog", "loader", "other"]


class TestDebugServer:
    @pytest.mark.parametrize("name", ["debug_server_stacks.txt", "debug_server_pyspy.txt"])
    def test_each_block_is_the_rank_it_names_whoever_the_file_belongs_to(self, name) -> None:
        stacks = read_live_stacks(recorded(name), name, 7)

        assert [s.rank for s in stacks] == [0, 1]
        assert [names(s.main)[-2:] for s in stacks] == [["main", "<module>"]] * 2
        assert names(stacks[0].main)[0] == "barrier"

    def test_lines_are_those_of_the_whole_file(self) -> None:
        text = recorded("debug_server_pyspy.txt")
        lines = text.splitlines()

        assert all(
            lines[t.line - 1].startswith("Thread ") for s in read_live_stacks(text, "x", None) for t in s.threads
        )

    def test_a_rank_that_did_not_answer_is_not_there(self) -> None:
        text = recorded("debug_server_pyspy.txt")
        first, second = text[: text.index("=== Rank 1")], text[text.index("=== Rank 1") :]
        failed = (
            "PARTIAL DATA: 1/2 workers responded\n  Rank 0: timed out\n\n" + first.splitlines()[0] + "\nError: 504\n"
        )

        assert looks_like_stacks(failed + second)
        assert [s.rank for s in read_live_stacks(failed + second, "x", None)] == [1]

    def test_of_a_rank_that_comes_twice_the_last_block_counts(self) -> None:
        text = recorded("debug_server_stacks.txt")
        stacks = read_live_stacks(text + text.replace("line 30 in main", "line 31 in main"), "x", None)

        assert [s.rank for s in stacks] == [0, 1]
        assert stacks[0].main is not None
        assert stacks[0].main.stack[2].line == 31


def test_what_is_kept_is_bounded_and_harmless() -> None:
    frame = '  File "/train/\x1b[31mt\u202e.py", line 3 in f\x07\n'
    one = "Thread 0x{:x} (most recent call first):\n" + frame * (MAX_FRAMES + 5) + "\n"
    (deep,) = read_live_stacks(one.format(1), "x", 0)
    (wide,) = read_live_stacks("".join(f"Thread {n} (idle)\n    f (t.py:1)\n" for n in range(MAX_THREADS + 5)), "x", 0)

    assert len(deep.threads[0].stack) == MAX_FRAMES
    assert deep.threads[0].stack[0] == Frame("f", "/train/t.py", 3)
    assert len(wide.threads) == MAX_THREADS
