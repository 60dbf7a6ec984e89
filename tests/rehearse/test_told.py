"""What a rehearsal looks like to people, programs and CI."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema

import forkpoint.rehearse
from forkpoint.rehearse.fake import Schedule, ScheduledCall, compare, sample_ranks
from forkpoint.rehearse.model import (
    Calm,
    CodeSite,
    Effect,
    RankUses,
    Rehearsal,
    Trial,
    TrialOutcome,
    TrialResult,
    TrialTarget,
    VerifiedFix,
)
from forkpoint.rehearse.paths import SeenFork
from forkpoint.rehearse.render import find_hazards, render_json, render_junit, render_page, render_text
from forkpoint.rehearse.trial import SeenPaths, apply_patch, move_trial, moved_line, with_fork
from forkpoint.source import read_program
from forkpoint.source.analysis import analyse
from looping import for_each

SCHEMA = json.loads((Path(forkpoint.rehearse.__file__).parent / "rehearsal.schema.json").read_text())


def forked(result, step, folder, apart, named=None):
    roots = [str(folder)]
    return with_fork(result, SeenPaths(step, named, apart), analyse(read_program(roots)), roots)


VERDICT = {
    "cause": "divergent-path",
    "suspects": [1],
    "summary": "Rank 1 <left>.",
    "sites": [],
    "probes": [],
    "fixes": [],
}


def parting(number, kind, rank=1):
    trial = Trial(number, kind, rank, TrialTarget(CodeSite("train.py", 7, "main"), (0, 1)), 0, 0)
    effect = Effect(rank, "its loss became nan", CodeSite("train.py", 7, "main"), 3, 1.0)
    fork = SeenFork("train.py", 8, 9, 0, 10)
    return TrialResult(trial, TrialOutcome.PARTS, "Rank 1 <left>.", 2.0, effect, fork, VERDICT)


def rehearsal(*results):
    calm = Calm((RankUses(0, 2, 5, 5, ()), RankUses(1, 2, 5, 5, ())), 1.5, complete=True)
    plan = tuple(result.trial for result in results)
    return Rehearsal(("torchrun", "train.py"), 0, calm, plan, results, 9.0, ("clock: the program reads no clock",))


AGREES = TrialResult(
    Trial(3, "clock", 0, TrialTarget(None, (0,)), 0, 0), TrialOutcome.AGREES, "all ranks continued to the end", 1.0
)
MISSED = TrialResult(
    Trial(4, "signal", 0, TrialTarget(None, (0,)), 0, 0), TrialOutcome.NOT_REACHED, "nothing was disturbed", 1.0
)
TOLD = rehearsal(parting(1, "not-a-number"), parting(2, "another-value", 0), AGREES, MISSED)


def test_trials_that_part_at_one_line_are_one_hazard():
    (hazard,) = find_hazards(TOLD.results)

    assert (hazard.place, hazard.kinds, hazard.ranks) == ("train.py:8", ("not-a-number", "another-value"), (0, 1))


def test_calls_that_do_not_fit_are_the_place_themselves():
    sites = [{"file": "train.py", "line": 21}]
    mismatch = replace(parting(1, "short-batch"), verdict={**VERDICT, "cause": "metadata-mismatch", "sites": sites})

    assert [hazard.place for hazard in find_hazards([mismatch])] == ["train.py:21"]


def test_the_json_is_as_its_schema_says():
    told = json.loads(render_json(TOLD))

    jsonschema.validate(told, SCHEMA)
    assert told["counts"] == {"agrees": 1, "parts": 2, "not reached": 1}


def test_the_text_names_line_rank_and_what_was_done_to_it():
    text = render_text(TOLD, 100)

    assert "ranks diverge at train.py:8" in text
    assert "after train.py:8 rank 1 went to line 9, rank 0 to line 10" in text
    assert "4 trials in 9 s: 1 agrees, 2 parts, 1 not reached" in text


def test_ci_sees_a_failed_test_for_each_trial_that_parts():
    suite = ET.fromstring(render_junit(TOLD))

    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    assert suite.find("testcase/failure").get("message") == "ranks diverge at train.py:8"


def test_the_page_needs_nothing_else_and_escapes_what_it_shows():
    page = render_page(TOLD, {1: "trial_1.html"})

    assert "Rank 1 &lt;left&gt;." in page
    assert "href='trial_1.html'" in page
    assert "src=" not in page
    assert "http" not in page


def test_a_fix_that_was_tried_is_shown_with_its_outcome():
    tried = replace(parting(1, "not-a-number"), verified=VerifiedFix("agree first", TrialOutcome.AGREES, ""))

    assert "with the fix: agrees" in render_text(rehearsal(tried), 100)


def schedule(rank, *ops):
    return Schedule(
        rank, tuple(ScheduledCall(op, tuple(range(8)), "[]", f"train.py:{n}") for n, op in enumerate(ops)), ()
    )


def test_schedules_of_one_group_are_compared_call_by_call():
    (found,) = compare(
        [schedule(0, "allreduce", "barrier"), schedule(1, "allreduce", "barrier"), schedule(7, "allreduce")]
    )

    assert (found.ranks, found.number, found.calls[1]) == ((0, 7), 2, None)
    assert list(compare([schedule(0, "barrier"), schedule(1, "barrier")])) == []


def test_ranks_of_a_large_world_are_taken_from_its_ends_and_its_middle():
    assert sample_ranks(512) == (0, 1, 7, 8, 255, 256, 510, 511)
    assert sample_ranks(2) == (0, 1)


def test_a_line_is_found_again_after_a_patch():
    old, new = ["a", "b", "c"], ["x", "y", "a", "B", "c"]

    assert [moved_line(old, new, line) for line in (1, 2, 3)] == [3, 4, 5]


TRAIN = """import torch
import torch.distributed as dist


def train(model, batches, optimizer):
    for batch in batches:
        loss = model(batch)
        if torch.isnan(loss):
            continue
        loss.backward()
        dist.all_reduce(loss)
        optimizer.step()
"""


def test_a_loader_is_known_by_its_number_wherever_a_patch_iterates_over_it(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    for folder, text in (
        (before, "for x in loader:\nx.item()\n"),
        (after, "import y\nfor x in y(loader):\nx.item()\n"),
    ):
        folder.mkdir()
        (folder / "train.py").write_text(text)
    targets = [
        TrialTarget(CodeSite("train.py", line, "main"), (0,), what) for line, what in ((1, "loader 0"), (2, "item"))
    ]
    trials = [Trial(1, "any", 0, target, 0, 0) for target in targets]

    sites = [move_trial(trial, before, after).target.site for trial in trials]

    assert sites[0] is None
    assert sites[1].line == 3


def test_the_fix_is_for_the_line_at_which_ranks_were_seen_to_part(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)

    told = forked(parting(1, "not-a-number"), None, tmp_path, apart=True).verdict

    assert "torch.isnan(loss)" in told["fixes"][0]["title"]
    assert apply_patch(told["fixes"][0]["patch"], tmp_path)
    assert "all_reduce" in (tmp_path / "train.py").read_text()


@for_each(
    "cause, suspects, apart, told",
    [
        ("inconclusive", [], True, ("divergent-path", [1], 8)),
        ("metadata-mismatch", [0], True, ("divergent-path", [1], 8)),
        ("divergent-path", [1], True, ("divergent-path", [1], 11)),  # the engine knows as much
        ("metadata-mismatch", [0], False, ("metadata-mismatch", [0], 11)),  # both were in the same call
        ("host-stall", [1], True, ("host-stall", [1], 11)),
    ],
)
def test_a_path_that_was_seen_decides_what_sizes_and_order_leave_open(tmp_path_factory, cause, suspects, apart, told):
    folder = tmp_path_factory.mktemp("source")
    (folder / "train.py").write_text(TRAIN)
    verdict = VERDICT | {"cause": cause, "suspects": suspects, "sites": [{"file": "train.py", "line": 11}]}
    result = replace(parting(1, "not-a-number"), verdict=verdict)

    found = forked(result, None, folder, apart=apart)

    assert (found.verdict["cause"], found.verdict["suspects"], found.verdict["sites"][0]["line"]) == told
    assert found.says == found.verdict["summary"]


@for_each(
    "first, told",
    [
        (SeenFork("train.py", 2, 3, 0, 4), 7),  # nothing is called under it, and the ranks meet again
        (SeenFork("train.py", 5, 6, 0, 7), 5),  # it leaves out a collective
        (SeenFork("train.py", 9, 10, 0, 8), 9),  # it leaves
    ],
)
def test_a_fork_after_which_ranks_meet_again_gives_way_to_the_one_that_the_engine_names(tmp_path_factory, first, told):
    folder = tmp_path_factory.mktemp("source")
    (folder / "train.py").write_text(
        "def save(count, bad, loss):\n"
        "    if bad:\n"
        "        count -= 1\n"
        "    count += 1\n"
        "    if count > 5:\n"
        "        dist.all_reduce(loss)\n"
        "    if count % 4 == 0:\n"
        "        dist.barrier()\n"
        "    if bad:\n"
        "        return\n"
        "    dist.barrier()\n"
        "import torch.distributed as dist\n"
    )
    result = replace(parting(1, "not-a-number"), fork=first)

    found = forked(result, None, folder, apart=True, named=SeenFork("train.py", 7, 11, 0, 8))

    assert found.fork.line == told


@for_each("disturbed_line, cause", [(8, "divergent-path"), (3, "inconclusive")])
def test_an_exception_is_a_fork_only_if_it_is_the_one_that_was_raised_on_purpose(
    tmp_path_factory, disturbed_line, cause
):
    folder = tmp_path_factory.mktemp("source")
    (folder / "train.py").write_text(
        "def train(model, batches, optimizer):\n"
        "    for batch in batches:\n"
        "        optimizer.zero_grad()\n"
        "\n\n\n"
        "        try:\n"
        "            model(batch).backward()\n"
        "        except RuntimeError:\n"
        "            continue\n"
    )
    result = parting(1, "out-of-memory")
    effect = replace(result.effect, site=CodeSite("train.py", disturbed_line, "train"))
    result = replace(result, effect=effect, verdict=VERDICT | {"cause": "inconclusive", "suspects": []})

    assert forked(result, None, folder, apart=True).verdict["cause"] == cause


def test_what_rank_0_does_alone_is_no_fork_but_an_exception_in_it_is(tmp_path):
    (tmp_path / "train.py").write_text(
        "import dist\n\n\n"
        "def save(net):\n"
        "    try:\n"
        "        write(net)\n"
        "    except OSError:\n"
        "        pass\n\n\n"
        "def exchange(net):\n"
        "    if dist.get_rank() == 0:\n"
        "        save(net)\n"
        "    else:\n"
        "        load(net)\n"
    )
    result = replace(parting(1, "exception-in-try", 0), fork=SeenFork("train.py", 12, 13, 1, 15))
    raised, passed = (SeenFork("train.py", 6, line, 1, 0) for line in (7, 9))

    forks = [forked(result, step, tmp_path, apart=True).fork for step in (raised, passed, None)]

    assert forks == [raised, None, None]
