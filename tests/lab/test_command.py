"""`forkpoint lab` as it is typed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from forkpoint.cli import main
from forkpoint.errors import UsageError
from forkpoint.lab.fault import FAULTS
from forkpoint.lab.record import TorchHere, find_torch
from looping import for_each

ROOT = Path(__file__).parents[2]


def test_the_list_needs_no_torch_and_names_everything() -> None:
    code = "import sys; sys.modules['torch'] = None; from forkpoint.cli import main; main(['lab', 'list'])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"\n{fault.name} " in done.stdout for fault in FAULTS)


def test_the_list_for_programs_says_job_and_cause(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "forkpoint.lab/1"
    by_name = {fault["name"]: fault for fault in told["faults"]}
    assert by_name["nan-skip"]["job"] == "ddp"
    assert by_name["nan-skip"]["cause"] == "divergent-path"


@for_each(
    ("args", "told"),
    [
        (["run", "early-stopp"], "did you mean early-stop?"),
        (["run", "xyzzy"], "`forkpoint lab list` lists them"),
        (["run", "early-stop", "nan-skip", "--html", "x.html"], "give one fault"),
        (["score", "--parallel", "0"], "at least 1"),
        (["score", "--from", "no/such/folder"], "is not a directory"),
        (["run"], "required: NAME"),
    ],
)
def test_wrong_usage_is_said_before_anything_is_run(args, told, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *args]) == 2

    assert told in capsys.readouterr().err


def test_without_torch_it_says_what_to_install(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n")
    python.chmod(0o755)

    with pytest.raises(UsageError, match=r"No module named 'torch'\): pip install torch"):
        find_torch(str(python))


def test_nccl_is_chosen_where_there_is_a_gpu() -> None:
    assert TorchHere("2.13.0", nccl=True).backend == "nccl"
    assert TorchHere("2.13.0+cpu", nccl=False).backend == "gloo"


def kept_case(folder: Path, number: str) -> None:
    """A recorded case under the name that a run of the lab would give it."""
    folder.mkdir()
    for part in ("capture", "source"):
        (folder / part).symlink_to(ROOT / "cases" / number / part)
    (folder / "case.toml").write_text(
        'title = "kept"\n[truth]\nsymptom = ["error", "watchdog-timeout"]\ncause = ["divergent-path"]\n'
        'suspects = [[6]]\naction = ["fix-code"]\nstory = "Rank 6 has fewer batches."\n'
    )


def test_kept_captures_are_scored_without_running_anything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept_case(tmp_path / "uneven-data", "0048")

    assert main(["lab", "score", "--from", str(tmp_path)]) == 0
    assert "1 cases: 1 right" in capsys.readouterr().out
    assert main(["lab", "score", "--from", str(tmp_path), "other-name"]) == 2


def test_a_folder_that_is_no_case_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "case.toml").write_text("title = 'x'\n")

    assert main(["lab", "score", "--from", str(tmp_path)]) == 3
    assert "not a case of the lab" in capsys.readouterr().err


def test_the_recorder_of_cases_runs_from_a_bare_checkout() -> None:
    done = subprocess.run(
        [sys.executable, "-S", str(ROOT / "cases" / "record.py"), "--help"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "--pg-timeout" in done.stdout
