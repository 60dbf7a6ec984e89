"""One real job of two gloo ranks, rehearsed once; tests look at what it gave."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FORKPOINT = (sys.executable, "-m", "forkpoint", "rehearse")
SCRIPT = Path(__file__).parent / "train.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    shutil.copy(SCRIPT, folder)
    return folder


def rehearse(folder, *options):
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return subprocess.run(
        [*FORKPOINT, "--ranks", "2", "--minutes", "20", "--rank", "1", *options, "--", sys.executable, "train.py"],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(scratch)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def told(folder):
    kinds = "one-batch-fewer,exception-in-try,out-of-memory,hash-seed"
    done = rehearse(folder, "--only", kinds, "--trials", "6", "--json")
    assert done.returncode == 1, done.stderr
    return json.loads(done.stdout)


def trial(told, kind):
    return next(t for t in told["trials"] if t["kind"] == kind)


def line_of(text):
    return next(n for n, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line)


def test_a_shard_with_one_batch_fewer_parts_the_ranks_at_the_loop(told):
    found = trial(told, "one-batch-fewer")

    assert found["outcome"] == "parts"
    assert found["effect"]["rank"] == 1
    assert (found["fork"]["file"], found["fork"]["line"]) == ("train.py", line_of("for batch in loader"))
    assert found["verdict"]["cause"] == "divergent-path"


def test_an_exception_that_one_rank_swallows_parts_them_at_its_line(told):
    found = trial(told, "exception-in-try")

    assert found["outcome"] == "parts"
    assert found["fork"]["line"] == line_of("= decode(batch)")
    assert found["fork"]["went_to"] == line_of("except ValueError")


def test_an_error_that_ends_its_rank_is_clear_and_no_parting(told):
    found = trial(told, "out-of-memory")

    assert found["outcome"] == "agrees"
    assert "OutOfMemoryError" in found["says"]


def test_a_rank_with_another_hash_seed_joins_the_others(told):
    found = trial(told, "hash-seed")

    assert found["outcome"] == "agrees"
    assert found["effect"]["says"] == "its strings have different hashes"


def test_nothing_of_a_trial_is_left_but_what_was_asked_for(told, folder):
    assert sorted(path.name for path in folder.iterdir()) == ["forkpoint-rehearsal", "scratch", "train.py"]
    assert list((folder / "scratch").iterdir()) == []
    assert not [pid for pid in pids_of_starters() if pid_folder(pid) == folder]


def pids_of_starters():
    commands = [(path, path / "cmdline") for path in Path("/proc").iterdir() if path.name.isdecimal()]
    for path, command in commands:
        try:
            if b"rehearse.inside.starter" in command.read_bytes():
                yield int(path.name)
        except OSError:
            continue


def pid_folder(pid):
    try:
        return Path(f"/proc/{pid}/cwd").resolve()
    except OSError:
        return None


def test_the_plan_is_kept_so_that_one_trial_can_be_repeated(told, folder):
    plan = json.loads((folder / "forkpoint-rehearsal" / "plan.json").read_text())

    assert [t["number"] for t in plan["plan"]][:3] == [1, 2, 3]
    assert (folder / "forkpoint-rehearsal" / "evidence" / "trial_1" / "logs" / "log_rank_1.txt").is_file()


@pytest.mark.sweep  # what is concluded from how such a run ends: test_parts.py
def test_a_job_that_fails_undisturbed_is_not_rehearsed(tmp_path):
    (tmp_path / "train.py").write_text(
        "import torch.distributed as d\nd.init_process_group('gloo')\nraise ValueError('mine')\n"
    )

    done = rehearse(tmp_path, "--only", "clock")

    assert done.returncode == 3
    assert "before anything was disturbed" in done.stderr
    assert "ValueError: mine" in done.stderr
