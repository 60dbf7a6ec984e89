"""The parts of a rehearsal that need no job."""

import ast
import os
import random
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from forkpoint.errors import UsageError
from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.inside.places import find_guarded
from forkpoint.rehearse.launch import plan_program
from forkpoint.rehearse.model import Calm, RankUses, Site, Target, Trial, Use, UseKind
from forkpoint.rehearse.outcome import last_error
from forkpoint.rehearse.paths import PathFile, find_fork
from forkpoint.rehearse.perturbations import PERTURBATIONS
from forkpoint.rehearse.perturbations.bounds import across, look_up_bound
from forkpoint.rehearse.plan import choose_moment, choose_ranks, plan_trials
from looping import for_each

HEADINGS = ("What it does", "Where it comes from", "When it can happen", "A healthy program")


@for_each("perturbation", PERTURBATIONS, ids=lambda p: p.kind)
def test_every_perturbation_documents_itself_under_the_same_headings(perturbation):
    lines = (sys.modules[perturbation.find.__module__].__doc__ or "").splitlines()

    assert [line for line in lines if line in HEADINGS] == list(HEADINGS)


@for_each(
    "value, operator, bound",
    [
        (3.0, ">", 5.0),
        (7.0, ">", 5.0),
        (3.0, "<=", 5.0),
        (7.0, "<", 5.0),
        (4, "==", 0),
        (0, "==", 0),
        (4, "!=", 0),
        (4, ">", 0),
    ],
)
def test_a_value_moved_across_its_bound_turns_the_comparison_around(value, operator, bound):
    compare = {
        ">": lambda v: v > bound, "<": lambda v: v < bound, "<=": lambda v: v <= bound,
        "==": lambda v: v == bound, "!=": lambda v: v != bound,
    }[operator]  # fmt: skip

    moved = across(value, operator, bound)

    assert compare(moved) != compare(value)
    assert type(moved) is type(value)


def test_bounds_are_found_where_the_value_is_compared(tmp_path):
    (tmp_path / "train.py").write_text(
        "def fit(loss, best):\n"
        "    value = loss.item()\n"
        "    if value < best - 0.1:\n"
        "        return 1\n"
        "    if 10.0 < loss.item():\n"
        "        return 2\n"
    )
    decisions = Decisions([str(tmp_path)])

    first = decisions.thresholds(Site("train.py", 2, "fit"))
    second = decisions.thresholds(Site("train.py", 5, "fit"))

    assert [(t.operator, t.bound) for t in first] == [("<", "best - 0.1")]
    assert [(t.operator, t.bound) for t in second] == [(">", "10.0")]


def test_a_bound_is_worked_out_where_the_value_is_read():
    best = 4.0

    assert look_up_bound("best * 0.5 - 1") == best * 0.5 - 1
    assert look_up_bound("-3.5") == -3.5
    assert look_up_bound("no_such_name + 1") is None


def test_handlers_that_end_a_loop_are_nobodys_bad_luck():
    tree = ast.parse(
        "try:\n    a()\nexcept StopIteration:\n    pass\ntry:\n    b()\nexcept (OSError, StopIteration):\n    pass\n"
    )

    assert [(g.first, g.catches) for g in find_guarded(tree)] == [(6, ("OSError",))]


def test_a_fork_is_the_last_line_that_both_ranks_executed(tmp_path):
    mine, theirs = PathFile(str(tmp_path), 1), PathFile(str(tmp_path), 0)
    for path, lines in ((mine, (1, 2, 3, 1, 2)), (theirs, (1, 2, 3, 1, 2, 3, 1))):
        for line in lines:
            path.add(path.number_of("train.py"), line)
    mine.mark()
    mine.add(mine.number_of("train.py"), 9)

    fork = find_fork(tmp_path, 1, 0)

    assert fork is not None
    assert (fork.line, fork.went_to, fork.other_went_to) == (2, 9, 3)


def test_what_a_loader_executes_on_both_ranks_is_no_fork(tmp_path):
    mine, theirs = PathFile(str(tmp_path), 1), PathFile(str(tmp_path), 0)
    for line in (5, 21, 22):
        mine.add(mine.number_of("train.py"), line)
    mine.mark()
    for path, lines in ((mine, (6, 7, 9)), (theirs, (5, 21, 22, 6, 7, 8))):
        for line in lines:
            path.add(path.number_of("train.py"), line)

    fork = find_fork(tmp_path, 1, 0, ("train.py", 5))

    assert fork is not None
    assert (fork.line, fork.went_to, fork.other_went_to) == (7, 9, 8)


def test_ranks_that_go_the_same_way_have_no_fork(tmp_path):
    mine, theirs = PathFile(str(tmp_path), 1), PathFile(str(tmp_path), 0)
    for line in (1, 2, 3):
        theirs.add(theirs.number_of("train.py"), line)
    mine.add(mine.number_of("train.py"), 1)
    mine.mark()
    mine.add(mine.number_of("train.py"), 2)

    assert find_fork(tmp_path, 1, 0) is None


def uses(rank, *found, world=4):
    return RankUses(rank, world, 10, 10, tuple(found))


def loader(rank, shared_out="0"):
    facts = {"shared_out": shared_out, "own_collate": "0", "iterable": "0", "workers": "0", "batches": "5"}
    return uses(rank, Use(UseKind.LOADER, Site("train.py", 7, "main"), "loader 0", 1, (5.0,), facts))


def kinds_for(calm):
    trials = plan_trials(calm, Decisions(["/nowhere"]), PERTURBATIONS, None, 0)
    return {trial.kind for trial in trials}


def test_a_sampler_that_shares_data_out_gives_no_rank_a_batch_fewer():
    assert "one-batch-fewer" in kinds_for(Calm(tuple(map(loader, range(4))), 1.0, complete=True))
    assert "one-batch-fewer" not in kinds_for(Calm(tuple(loader(r, "1") for r in range(4)), 1.0, complete=True))


def test_a_rank_of_every_role_is_chosen():
    writes = Use(UseKind.WRITE, Site("train.py", 9, "main"), "log", 1)
    calm = Calm((uses(0), uses(1, writes), uses(2), uses(3)), 1.0, complete=True)

    assert choose_ranks(calm) == (2, 0, 3, 1)


def test_the_same_seed_plans_the_same_trials():
    calm = Calm(tuple(map(loader, range(4))), 1.0, complete=True)
    plans = [plan_trials(calm, Decisions(["/nowhere"]), PERTURBATIONS, None, 7) for _ in range(2)]

    assert plans[0] == plans[1]


@for_each(
    "command, ranks, words",
    [
        (["python3", "train.py", "--lr", "1"], 4, ("train.py", "--lr", "1")),
        (["python3", "-m", "torch.distributed.run", "--nproc-per-node=2", "train.py", "-x"], 2, ("train.py", "-x")),
        (["python3", "-m", "torch.distributed.run", "--nnodes", "1", "-m", "pkg.train"], 4, ("-m", "pkg.train")),
        (["python3", "spawns.py"], 0, ()),
        (["env", "python3", "train.py"], 0, ()),
    ],
)
def test_ranks_are_started_one_by_one_where_that_is_possible(command, ranks, words):
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            Path("train.py").write_text("print(1)\n")
            Path("spawns.py").write_text("import torch.multiprocessing as mp\nmp.spawn(print, nprocs=2)\n")
            program = plan_program(command, None, os.environ)
        finally:
            os.chdir(before)

    assert (program.ranks, program.words) == (ranks, words)


def test_a_command_that_is_not_there_is_said():
    with pytest.raises(UsageError, match="no such command"):
        plan_program(["no-such-command-here"], None, {"PATH": "/usr/bin"})


def test_the_last_error_of_a_log_is_found():
    text = (
        "step 3\nTraceback (most recent call last):\n  File 'train.py', line 3\nValueError: a bad batch\nlast words\n"
    )

    assert last_error(text) == "ValueError: a bad batch"
    assert last_error("all is well: nothing happened\n") == ""


def test_a_trial_has_a_name_that_says_what_is_done_to_whom():
    target = Target(Site("train.py", 3, "main"), (0,), label="nan")

    assert Trial(1, "not-a-number", 0, target, 0, 0).name == "not-a-number at train.py:3 (nan), rank 0"


def test_the_first_rank_is_disturbed_early_and_later_ones_in_the_middle_of_the_run():
    often = Target(Site("train.py", 3, "main"), (0,), "item", 90)
    seldom = replace(often, occurrences=2)

    assert {choose_moment(often, random.Random(n), early=True) for n in range(50)} == {0, 1, 2}
    assert all(30 <= choose_moment(often, random.Random(n), early=False) < 60 for n in range(50))
    assert {choose_moment(seldom, random.Random(n), early=False) for n in range(50)} == {0}
