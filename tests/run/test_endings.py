"""How a run ends, whatever its command does: exit code, evidence, and no process left. Plain programs, no torch."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from looping import for_each
from run.wrapped import Done, Wrapped, python, start

SAYS_READY = "import signal, sys, time\nprint('ready', flush=True)\n"
WAITS = SAYS_READY + "time.sleep(600)\n"
IGNORES_SIGTERM = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WAITS
LEAVES_A_DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:  # a session of its own, no parent, and nothing in its environment
        os.execve(sys.executable, [sys.executable, "-c",
            "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
            "open('daemon.new', 'w').write(str(os.getpid())); os.rename('daemon.new', 'daemon'); time.sleep(600)"], {})
    os._exit(0)
while not os.path.exists("daemon"):
    os.sched_yield()
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def _hangups_are_heard() -> Iterator[None]:
    """Tests that are themselves run under nohup would have every run inherit that they are ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def begin(folder: Path, *words: str) -> Wrapped:
    """Nobody else writes here: dumps are not waited for. Who hears a signal gets the time to end."""
    return start(folder, "--timeout-for-dumps", "0.1", "--grace", "100", *words)


def run(folder: Path, *words: str) -> Done:
    return begin(folder, *words).finish()


def test_a_job_that_succeeds_is_passed_on_as_it_is_and_leaves_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, *python(tmp_path, "import sys\nprint('an answer')\nprint('a remark', file=sys.stderr)"))

    assert (done.code, done.stdout, done.stderr) == (0, "an answer\n", "a remark\n")
    assert not (tmp_path / "runs").exists()
    assert done.outcome["decision"]["code"] == 0


def test_the_folder_of_a_success_is_kept_when_asked_for(tmp_path: Path) -> None:
    done = run(tmp_path, "--keep", *python(tmp_path, "print('an answer')"))

    assert [path.read_text() for path in done.evidence()] == ["an answer\n"]


def test_a_dump_is_kept_although_the_job_succeeded(tmp_path: Path) -> None:
    dumps = "import os\nopen(os.environ['TORCH_FR_DUMP_TEMP_FILE'] + '0', 'wb').write(b'x')"

    done = run(tmp_path, *python(tmp_path, dumps))

    assert done.code == 0
    assert [path.name for path in done.evidence()] == ["nccl_trace_rank_0"]


def test_a_failure_that_is_not_understood_keeps_its_exit_code_and_its_output_beside_its_metrics(tmp_path: Path) -> None:
    fails = "import sys\nprint('an answer')\nprint('no such flag', file=sys.stderr)\nsys.exit(7)"
    done = run(tmp_path, "--prometheus", "run.prom", *python(tmp_path, fails))

    assert done.code == 7
    assert sorted(path.read_text() for path in done.evidence()) == ["an answer\n", "no such flag\n"]
    assert "forkpoint: exit code 7: " in done.stderr
    assert "\nforkpoint_run_exit_code 7.0\n" in (tmp_path / "run.prom").read_text()


def test_a_killed_command_ends_as_in_a_shell(tmp_path: Path) -> None:
    done = run(tmp_path, *python(tmp_path, "import os\nos.kill(os.getpid(), 11)"))

    assert done.code == 128 + signal.SIGSEGV


def test_a_command_that_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    done = run(tmp_path, "--", "no-such-launcher")

    assert done.code == 2
    assert "no-such-launcher: cannot be started" in done.stderr
    assert not (tmp_path / "runs").exists()


@for_each("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_stop_is_passed_on_and_nothing_is_diagnosed(tmp_path: Path, number: int) -> None:
    answers = f"import signal, sys\nsignal.signal({number}, lambda *_: sys.exit(40))\n" + WAITS
    wrapped = begin(tmp_path, *python(tmp_path, answers))
    wrapped.wait_for_line("ready")

    wrapped.process.send_signal(number)
    done = wrapped.finish()

    assert done.code == 40
    assert "VERDICT" not in done.stderr
    assert done.outcome["attempts"][0]["stopped_by"] == number
    assert [path.name for path in done.evidence()] == ["stdout.log"]
    assert done.survivors() == []


def test_other_signals_are_passed_on_and_the_job_goes_on(tmp_path: Path) -> None:
    answers = "import signal\nsignal.signal(signal.SIGUSR1, lambda *_: print('heard', flush=True))\n"
    wrapped = begin(tmp_path, *python(tmp_path, answers + SAYS_READY + "input()"))
    wrapped.wait_for_line("ready")

    wrapped.process.send_signal(signal.SIGUSR1)
    wrapped.wait_for_line("heard")

    assert wrapped.process.stdin is not None
    wrapped.process.stdin.write("go on\n")
    assert wrapped.finish().code == 0


def test_a_command_that_ignores_the_signal_is_killed_after_the_grace(tmp_path: Path) -> None:
    wrapped = begin(tmp_path, "--grace", "0.5", *python(tmp_path, IGNORES_SIGTERM))
    wrapped.wait_for_line("ready")

    wrapped.process.terminate()
    done = wrapped.finish()

    assert done.code == 128 + signal.SIGKILL
    assert done.survivors() == []
    assert [path.read_text() for path in done.evidence()] == ["ready\n"]


def test_a_second_signal_ends_the_grace(tmp_path: Path) -> None:
    hears = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: print('heard', flush=True))\n" + SAYS_READY
    wrapped = begin(tmp_path, "--grace", "1000", *python(tmp_path, hears + "while True: time.sleep(600)"))
    wrapped.wait_for_line("ready")

    wrapped.process.terminate()
    wrapped.wait_for_line("heard")
    wrapped.process.terminate()

    assert wrapped.finish().code == 128 + signal.SIGKILL


@pytest.mark.parametrize("code", [0, 9])
def test_a_grandchild_in_a_session_of_its_own_does_not_survive(tmp_path: Path, code: int) -> None:
    done = run(tmp_path, *python(tmp_path, LEAVES_A_DAEMON), str(code))

    assert done.code == code
    assert not Path(f"/proc/{(tmp_path / 'daemon').read_text()}/cwd").exists()
    assert done.survivors() == []


def test_when_the_wrapper_is_killed_the_launcher_is_told_to_end(tmp_path: Path) -> None:
    hears = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(open('heard', 'w').close()))\n"
    wrapped = begin(tmp_path, *python(tmp_path, hears + WAITS))
    wrapped.wait_for_line("ready")

    wrapped.process.kill()
    wrapped.finish()

    until = time.monotonic() + 600
    while not (tmp_path / "heard").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert (tmp_path / "heard").exists()


def test_a_hangup_that_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        wrapped = begin(tmp_path, *python(tmp_path, SAYS_READY + "input()"))
    finally:
        signal.signal(signal.SIGHUP, before)
    wrapped.wait_for_line("ready")

    wrapped.process.send_signal(signal.SIGHUP)

    assert wrapped.process.stdin is not None
    wrapped.process.stdin.write("go on\n")
    assert wrapped.finish().code == 0


def test_a_second_run_of_the_same_name_does_not_touch_the_first(tmp_path: Path) -> None:
    run(tmp_path, "--keep", "--name", "mine", *python(tmp_path, "print('first')"))
    done = run(tmp_path, "--keep", "--name", "mine", *python(tmp_path, "print('second')"))

    assert {path.read_text() for path in done.evidence()} == {"first\n", "second\n"}
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["mine", "mine-2"]


# ------------------------------------------------------------------------------------------------------------- retries


def test_a_retry_that_passes_is_a_success(tmp_path: Path) -> None:
    fails_once = "import os, sys\nsys.exit(os.environ['FORKPOINT_ATTEMPT'] == '0')"

    done = run(tmp_path, "--retries", "3", "--back-off", "0.01", *python(tmp_path, fails_once))

    assert done.code == 0
    assert [attempt["exit_code"] for attempt in done.outcome["attempts"]] == [1, 0]


def test_when_retries_are_used_up_the_last_exit_code_stands(tmp_path: Path) -> None:
    numbered = "import os, sys\nsys.exit(int(os.environ['FORKPOINT_ATTEMPT']) + 20)"

    done = run(tmp_path, "--retries", "1", "--back-off", "0.01", *python(tmp_path, numbered))

    assert done.code == 21
    folders = [attempt["folder"] for attempt in done.outcome["attempts"]]
    assert len(set(folders)) == 2


def test_the_same_cause_without_progress_is_not_tried_a_third_time(tmp_path: Path) -> None:
    """Every attempt leaves what a job left that lost its rank 1."""
    lost = Path(__file__).parents[2] / "cases" / "0039" / "capture"
    leaves = f"""
import os, shutil, sys
folder = os.path.dirname(os.environ["TORCH_FR_DUMP_TEMP_FILE"])
shutil.copytree({str(lost)!r}, folder, dirs_exist_ok=True)
sys.exit(1)
"""

    done = run(tmp_path, "--retries", "5", "--back-off", "0.01", *python(tmp_path, leaves))

    assert done.code == 93
    assert [attempt["decision"]["code"] for attempt in done.outcome["attempts"]] == [75, 75]
    assert done.verdict["cause"] == "transport"


def test_a_job_that_was_told_to_stop_is_not_tried_again(tmp_path: Path) -> None:
    wrapped = begin(tmp_path, "--retries", "3", "--back-off", "0.01", *python(tmp_path, WAITS))
    wrapped.wait_for_line("ready")

    wrapped.process.terminate()
    done = wrapped.finish()

    assert done.code == 128 + signal.SIGTERM
    assert len(done.outcome["attempts"]) == 1


def test_a_signal_between_attempts_ends_it(tmp_path: Path) -> None:
    wrapped = begin(tmp_path, "--retries", "3", "--back-off", "1000", *python(tmp_path, "import sys\nsys.exit(1)"))
    assert wrapped.process.stderr is not None
    assert any("starts in" in line for line in wrapped.process.stderr)

    wrapped.process.terminate()

    assert wrapped.finish().code == 128 + signal.SIGINT
    assert wrapped.survivors() == []
