"""Every fault fits its job, and its truth is one that a verdict can be compared with."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from docs.build import DOCS, render_faults
from forkpoint.lab.fault import DDP, FAULTS, JOBS, Edit, Fault, patch, read_case, write_case
from forkpoint.model.verdict import Cause
from looping import for_each

BROKEN = [fault for fault in FAULTS if fault.truth.cause[0] is not Cause.HEALTHY]
BY_NAME = for_each("fault", FAULTS, ids=lambda fault: fault.name)


@BY_NAME
def test_the_edits_fit_the_job_and_the_result_compiles(fault: Fault) -> None:
    patched = patch(fault)

    compile(patched.text, "train.py", "exec")
    assert all(edit.replace in patched.text for edit in fault.edits)
    assert all(1 <= first <= last <= patched.text.count("\n") for first, last in patched.guilty)


@BY_NAME
def test_suspects_are_ranks_of_the_job_in_order(fault: Fault) -> None:
    for backend in fault.backends:
        truth = fault.truth_for(backend)

        assert truth.suspects
        assert truth.cause
        assert all(list(answer) == sorted(set(answer)) for answer in truth.suspects)
        assert all(0 <= rank < fault.job.world for answer in truth.suspects for rank in answer)


@for_each("fault", BROKEN, ids=lambda fault: fault.name)
def test_something_is_broken_and_the_truth_tells_what(fault: Fault) -> None:
    assert any(edit.guilty for edit in fault.edits) or fault.signals or fault.absent
    assert fault.truth.story.endswith(".")


def test_no_name_is_used_twice() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_every_job_has_a_healthy_run_and_at_least_three_faults() -> None:
    unpatched = [fault.job for fault in FAULTS if fault not in BROKEN and not fault.edits]

    assert unpatched == list(JOBS)
    assert all(sum(fault.job is job for fault in BROKEN) >= 3 for job in JOBS)


def test_every_cause_that_can_be_broken_is_broken() -> None:
    assert {fault.truth.cause[0] for fault in FAULTS} == set(Cause) - {Cause.INCONCLUSIVE}


def test_any_rank_may_be_the_guilty_one() -> None:
    named = {rank for fault in BROKEN for answer in fault.truth.suspects for rank in answer}

    assert named == {0, 1, 2, 3}


@pytest.mark.parametrize("find", ["no such line\n", "RANK"])
def test_an_edit_that_does_not_stand_in_the_job_exactly_once_is_refused(find: str) -> None:
    fault = replace(BROKEN[0], job=DDP, edits=(Edit(find, "pass\n"),))

    with pytest.raises(ValueError, match=r"found \d+ times in ddp"):
        patch(fault)


def test_the_guilty_lines_are_those_of_the_edits_that_are_the_mistake() -> None:
    harmless = Edit("import os\n", "import os\nimport re\n", guilty=False)
    mistake = Edit("        loss.backward()\n", "        if RANK:\n            loss.backward()\n")
    patched = patch(replace(BROKEN[0], job=DDP, edits=(mistake, harmless)))

    first, last = patched.guilty[0]
    lines = patched.text.splitlines()

    assert len(patched.guilty) == 1
    assert [line.strip() for line in lines[first - 1 : last]] == ["if RANK:", "loss.backward()"]


@BY_NAME
def test_a_truth_that_was_written_reads_back_the_same(fault: Fault, tmp_path: Path) -> None:
    write_case(tmp_path, fault, patch(fault), fault.backends[0], fault.job.world)

    assert read_case(tmp_path).truth == fault.truth_for(fault.backends[0])


@for_each("job", JOBS, ids=lambda job: job.name)
def test_jobs_are_short_programs_that_take_their_place_from_the_environment(job) -> None:
    assert 50 <= job.text.count("\n") <= 125
    assert re.search(r'os\.environ\["RANK"\]', job.text)
    assert "argparse" not in job.text


def test_the_page_of_the_lab_names_the_faults_there_are() -> None:
    page = (DOCS / "lab.md").read_text()

    assert page == render_faults(page), "run `make docs`"
    assert all(f"| `{fault.name}` |" in page for fault in FAULTS)
