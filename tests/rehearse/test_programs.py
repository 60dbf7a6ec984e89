"""Programs that a stranger's made necessary: each is rehearsed, with the kinds that fit, on four gloo ranks."""

import json
import os
import shutil
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from forkpoint.rehearse.ranks import WarmStart
from forkpoint.rehearse.rehearsal import RehearsalSettings, rehearse
from forkpoint.rehearse.render import render_json
from forkpoint.rehearse.run import common_environ, plan_program
from looping import for_each

pytestmark = pytest.mark.sweep

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    """What a rehearsal of a program tells."""
    starter = WarmStart(sys.executable, common_environ(os.environ))

    def told(name, *kinds):
        folder = tmp_path_factory.mktemp("program")
        shutil.copy(PROGRAMS / name, folder / "train.py")
        with chdir(folder):
            program = plan_program([sys.executable, "train.py"], 4, os.environ)
            settings = RehearsalSettings(20, 3, kinds, starter=starter)
            return json.loads(render_json(rehearse(program, settings, lambda *_: None, lambda _: None)))

    yield told
    starter.end()


def test_an_error_of_the_others_is_a_parting_if_the_disturbed_rank_made_another_call(rehearsed):
    found = rehearsed("blind/cache_rebuilt.py", "exception-in-try")
    lines = (PROGRAMS / "blind/cache_rebuilt.py").read_text().splitlines()
    marked = next(n for n, line in enumerate(lines, 1) if "# here" in line)

    assert found["counts"]["parts"] == 3
    assert [trial["verdict"]["suspects"] for trial in found["trials"]] == [[2], [2], [0]]
    assert [hazard["place"] for hazard in found["hazards"]] == [f"train.py:{marked}"]


def test_ranks_that_agree_to_rebuild_do_not_part(rehearsed):
    assert rehearsed("blind/cache_rebuilt_fixed.py", "exception-in-try")["counts"]["parts"] == 0


def test_a_validation_set_that_all_ranks_read_is_not_cut(rehearsed):
    kinds = ("one-batch-fewer", "one-batch-more", "short-batch")

    assert rehearsed("healthy/same_validation.py", *kinds)["trials"] == []


BLIND = [
    ("easy_first", "not-a-number", "order-inversion"),
    ("timed_save", "clock", "divergent-path"),
    ("tracker_off", "exception-in-try", "divergent-path"),
    ("sliced_texts", "small-samples", "divergent-path"),
]


@for_each("name, kind, cause", BLIND)
def test_a_program_parts_at_its_line_and_its_repaired_version_does_not(rehearsed, name, kind, cause):
    lines = (PROGRAMS / f"blind/{name}.py").read_text().splitlines()
    marked = next(n for n, line in enumerate(lines, 1) if "# here" in line)

    found = rehearsed(f"blind/{name}.py", kind)
    parted = [trial for trial in found["trials"] if trial["outcome"] == "parts"]

    assert all(trial["verdict"]["suspects"] == [trial["rank"]] for trial in parted)
    assert {trial["verdict"]["cause"] for trial in parted} == {cause}
    assert [hazard["place"] for hazard in found["hazards"]] == [f"train.py:{marked}"]
    assert rehearsed(f"blind/{name}_fixed.py", kind)["counts"]["parts"] == 0
