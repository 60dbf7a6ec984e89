"""Switched on by the environment alone, under a real torchrun: for `make sweep`, since every rank imports torch.

That ranks of torchrun have a guard without a change of code is also seen by tests/run/test_torchrun_jobs.py: it tells of the
hang there, and takes the stacks.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.sweep]

SCRIPT = """
import time
from datetime import timedelta
import torch, torch.distributed as dist

dist.init_process_group("gloo", timeout=timedelta(seconds=600))
rank = dist.get_rank()
for step in range(100_000):
    time.sleep(0.02)
    if step == 60 and rank == 2:
        dist.broadcast(torch.ones(3), 0)
    dist.all_reduce(torch.ones(10))
"""


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("torchrun")
    (folder / "train.py").write_text(SCRIPT)
    command = [
        str(Path(sys.executable).parent / "torchrun"),
        "--standalone",
        "--nproc-per-node=3",
        "train.py",
    ]
    environ = os.environ | {"FORKPOINT": "raise", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False, errors="replace"
    )
    return run.stdout + run.stderr


def test_without_a_change_of_code_the_guard_says_what_goes_wrong_and_ends_the_job(output: str) -> None:
    """Otherwise the job would hang for ten minutes, until gloo's timeout, which nobody here says."""
    alarms = set(re.findall(r"forkpoint guard: 20\S+Z ([a-z-]+), .*", output))
    assert "divergent-path" in alarms, output
    assert re.search(r"Rank 2 took another path: at .* it called broadcast", output)
    assert "Timed out waiting" not in output


def test_guards_meet_in_the_agents_store(output: str) -> None:
    assert "blind" not in output
