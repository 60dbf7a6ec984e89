import os
import subprocess
import sys
from pathlib import Path

import pytest

from forkpoint import __version__
from forkpoint.cli import COMMANDS, demo, main
from ingest.encode import encode
from ingest.samples import dump, entry
from looping import for_each


def forkpoint(*args: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "forkpoint", *args], text=True, check=False, **options)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0

    out = capsys.readouterr().out
    listed = {
        line.split()[0]
        for line in out.partition("commands:")[2].splitlines()
        if line.startswith("    ") and line[4:5] != " "
    }
    assert listed - {"COMMAND"} == {command.name for command in COMMANDS}


def test_version_is_the_package_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0

    assert capsys.readouterr().out == f"forkpoint {__version__}\n"


@for_each("args", [["diagnose"], ["nonsense"], ["diagnose", "x", "--width", "3"], ["demo", "--wide"]])
def test_wrong_usage_exits_2_with_one_line_on_stderr(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("forkpoint: ")
    assert err.count("\n") == 1


def test_escapes_in_arguments_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--\x1b[2Jx"]) == 2

    assert "\x1b" not in capsys.readouterr().err


def test_a_diagnosis_of_dumps_makes_few_dataclasses_and_loads_no_source_log_or_service(tmp_path: Path) -> None:
    """Each dataclass costs a third of a millisecond before anything is read; a Struct a hundredth of that."""
    for rank in range(2):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(encode(dump([entry(0)])))
    code = (
        "import dataclasses, sys; process, made = dataclasses._process_class, []\n"
        "dataclasses._process_class = lambda cls, *a, **k: made.append(cls.__module__) or process(cls, *a, **k)\n"
        "from forkpoint.cli import main; main(['diagnose', sys.argv[1], '--in-process'])\n"
        "own = sorted({name for name in made if name.startswith('forkpoint.')})\n"
        "heavy = {'asyncio', 'tomllib', 'forkpoint.source.code', 'forkpoint.evidence.logs', 'forkpoint.sinks'}\n"
        "print(own, sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)

    public = ["forkpoint.model.capture", "forkpoint.model.incident", "forkpoint.model.verdict"]
    assert done.stderr.splitlines()[-1] == f"{public} []"


def test_only_the_command_that_is_asked_for_is_imported() -> None:
    code = (
        "import sys; from forkpoint.cli import main; main(['demo', '--help']);"
        "sys.stderr.write(', '.join({'forkpoint.cli.' + name for name in ('demo', 'lint', 'agent')} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.stderr == "forkpoint.cli.demo"


def test_help_pays_for_neither_numpy_nor_rich() -> None:
    code = (
        "import sys; from forkpoint.cli import main; main(['diagnose', '--help']);"
        "sys.stderr.write(', '.join({'numpy', 'rich', 'json', 'torch'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)

    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with os.fdopen(write_end, "w") as nobody_reads:
        done = forkpoint("--help", stdout=nobody_reads, stderr=subprocess.PIPE, env=buffered)

    assert (done.returncode, done.stderr) == (141, "")


def test_a_crash_does_not_read_as_something_found(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(_: object) -> int:
        raise RuntimeError("\x1b[2J")

    monkeypatch.setattr("forkpoint.cli.demo.COMMAND", demo.COMMAND._replace(run=crash))

    assert main(["demo"]) == 70

    err = capsys.readouterr().err
    assert "this is a bug in forkpoint" in err
    assert "\x1b" not in err


def test_output_on_a_full_disk_is_told_as_that_and_not_as_a_bug(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(encode(dump([entry(0)])))

    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = forkpoint("diagnose", str(tmp_path), "--quiet", "--json", stdout=full, stderr=subprocess.PIPE)

    assert (done.returncode, done.stderr.count("Traceback")) == (2, 0)
    assert "No space left on device" in done.stderr


def test_a_command_calls_what_was_registered_for_its_exit(tmp_path: Path) -> None:
    code = "import atexit, sys; from forkpoint.cli import main; atexit.register(print, 'at exit'); sys.argv[1:] = ['--version']; main()"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [f"forkpoint {__version__}", "at exit"]
