"""One real job of two gloo ranks with mistakes and their careful twins: each mistake is found, no twin is reported.

In `make sweep`: what is done to a rank is tested part by part in the files beside this one, and a whole rehearsal in test_live.py.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sweep

SCRIPT = Path(__file__).parent / "twins.py"
KINDS = "one-batch-fewer,late-thread,not-ready,one-sample-fewer,small-samples,empty-mask,another-value"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What the trials of each marked line gave: {comment: {(kind, outcome)}}."""
    folder = tmp_path_factory.mktemp("twins")
    shutil.copy(SCRIPT, folder)
    command = [
        sys.executable,
        "-m",
        "forkpoint",
        "rehearse",
        "--ranks",
        "2",
        "--minutes",
        "20",
        "--rank",
        "1",
        "--json",
    ]
    done = subprocess.run(
        [*command, "--only", KINDS, "--trials", "20", "--", sys.executable, "twins.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    marks = {n: line.partition("  # ")[2] for n, line in enumerate(SCRIPT.read_text().splitlines(), 1)}
    found = {}
    for trial in json.loads(done.stdout)["trials"]:
        found.setdefault(marks[trial["site"]["line"]], set()).add((trial["kind"], trial["outcome"]))
    return found


def test_a_late_thread_parts_ranks_only_where_it_shares_its_group(outcomes):
    assert outcomes["late in the same group"] == {("late-thread", "parts")}
    assert outcomes["late in its own group"] == {("late-thread", "agrees")}


def test_a_message_that_is_not_there_yet_parts_ranks_only_where_each_acts_on_it_alone(outcomes):
    assert outcomes["asked alone"] == {("not-ready", "parts")}
    assert outcomes["asked by all"] == {("not-ready", "agrees")}


def test_a_filter_that_drops_data_parts_ranks_only_where_sizes_are_taken_for_equal(outcomes):
    assert outcomes["filtered and gathered"] == {("one-sample-fewer", "parts")}
    assert outcomes["filtered and counted"] == {("one-sample-fewer", "agrees")}


def test_a_generator_that_ends_early_parts_ranks_only_where_each_counts_alone(outcomes):
    assert outcomes["one call for each"] == {("one-batch-fewer", "parts")}
    assert outcomes["counted first"] == {("one-batch-fewer", "agrees")}


def test_a_batch_of_short_samples_parts_ranks_that_pad_it_alone(outcomes):
    assert ("small-samples", "parts") in outcomes["padded alone"]


def test_a_mask_that_selects_nothing_parts_ranks_only_where_one_leaves_a_call_out(outcomes):
    assert outcomes["selected alone"] == {("empty-mask", "parts")}
    assert outcomes["selected by all"] == {("empty-mask", "agrees")}


def test_a_metric_parts_ranks_only_where_each_judges_alone(outcomes):
    assert outcomes["judged alone"] == {("another-value", "parts")}
    assert outcomes["judged by all"] == {("another-value", "agrees")}
