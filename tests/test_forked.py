"""`tests/forked.py`: whatever becomes of a process, no test goes unreported."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent
FAILS = """
import os, pytest
def test_fails():
    print("said before")
    assert 1 == 2
def test_skips():
    pytest.skip("why")
def test_dies():
    os._exit(7)
def test_after():
    pass
"""
PASSES = """
def test_what_is_printed_is_its_own(capfd):
    print("mine")
    assert capfd.readouterr().out == "mine\\n"
"""


def test_what_fails_is_skipped_or_dies_is_reported_and_what_follows_a_death_is_not_taken_for_passed(
    tmp_path: Path,
) -> None:
    (tmp_path / "test_fails.py").write_text(FAILS)
    (tmp_path / "test_passes.py").write_text(PASSES)
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", ".", "-p", "tests.forked", "--forks", "2"]
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    environ = os.environ | {"PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider"], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )

    assert run.returncode == 1
    assert "3 failed, 1 passed, 1 skipped" in run.stdout
    assert "said before" in run.stdout
    assert run.stdout.count("the process that was to run it ended with 7") >= 2
