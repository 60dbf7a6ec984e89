"""The parts of a rehearsal that need no job."""

import ast
import inspect
import json
import math
import os
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import forkpoint
from forkpoint.errors import UsageError
from forkpoint.rehearse.decisions import Decisions
from forkpoint.rehearse.inside.notes import Notes
from forkpoint.rehearse.inside.user_code import find_guarded
from forkpoint.rehearse.listening import GeneratorFacts, InsideRank, LoaderFacts
from forkpoint.rehearse.model import (
    RESUMED,
    Calm,
    CodeSite,
    Effect,
    RankUses,
    RunMode,
    RunOrder,
    Trial,
    TrialOutcome,
    TrialResult,
    TrialTarget,
    Use,
    UseKind,
    read_value,
    write_value,
)
from forkpoint.rehearse.outcome import judge_trial, last_error
from forkpoint.rehearse.paths import PathFile, SeenFork, find_fork, find_step, find_ways, last_line
from forkpoint.rehearse.perturbations import PERTURBATIONS, find_perturbation
from forkpoint.rehearse.perturbations.samples import differ_in_size
from forkpoint.rehearse.perturbations.values import across, look_up_bound
from forkpoint.rehearse.rehearsal import CalmRunFailed, choose_moment, choose_ranks, merge_workers, plan_trials
from forkpoint.rehearse.rehearsal import _check as check_calm
from forkpoint.rehearse.run import MOVED, Ended, RanksLoad, plan_program
from forkpoint.rehearse.trial import Silence, choose_other, waits_alike
from forkpoint.rehearse.workspace import Workspace
from forkpoint.source import read_program
from forkpoint.source.analysis import analyse
from looping import for_each

HEADINGS = ("What it does", "Where it comes from", "When it can happen", "A healthy program")


@for_each("perturbation", PERTURBATIONS, ids=lambda p: p.kind)
def test_every_perturbation_documents_itself_under_the_same_headings(perturbation):
    lines = (inspect.getdoc(perturbation) or "").splitlines()

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

    first = decisions.thresholds(CodeSite("train.py", 2, "fit"))
    second = decisions.thresholds(CodeSite("train.py", 5, "fit"))

    assert [(t.operator, t.bound) for t in first] == [("<", "best - 0.1")]
    assert [(t.operator, t.bound) for t in second] == [(">", "10.0")]


def test_a_value_compared_with_itself_has_no_bound(tmp_path):
    (tmp_path / "train.py").write_text(
        "def fit(loss):\n    value = loss.item()\n    return value != value or value > 3.0\n"
    )

    found = Decisions([str(tmp_path)]).thresholds(CodeSite("train.py", 2, "fit"))

    assert [(t.operator, t.bound) for t in found] == [(">", "3.0")]


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


def test_the_handler_of_a_signal_that_one_rank_got_is_no_fork(tmp_path):
    mine, theirs = PathFile(str(tmp_path), 1), PathFile(str(tmp_path), 0)
    for line in (5, 6, 90, 91):
        mine.add(mine.number_of("train.py"), line)
    mine.mark()
    for path, lines in ((mine, (7, 8)), (theirs, (5, 6, 7, 5))):
        for line in lines:
            path.add(path.number_of("train.py"), line)

    fork = find_fork(tmp_path, 1, 0)

    assert fork is not None
    assert (fork.line, fork.went_to, fork.other_went_to) == (7, 8, 5)


def test_ranks_that_go_the_same_way_have_no_fork(tmp_path):
    mine, theirs = PathFile(str(tmp_path), 1), PathFile(str(tmp_path), 0)
    for line in (1, 2, 3):
        theirs.add(theirs.number_of("train.py"), line)
    mine.add(mine.number_of("train.py"), 1)
    mine.mark()
    mine.add(mine.number_of("train.py"), 2)

    assert find_fork(tmp_path, 1, 0) is None


def test_a_step_leads_from_the_disturbed_line_to_the_next_one_of_its_file(tmp_path):
    path = PathFile(str(tmp_path), 1)
    path.add(path.number_of("train.py"), 5)
    path.mark()
    path.add(path.number_of("train.py"), 9)

    assert find_step(tmp_path, 1, 0, ("train.py", 5)) == SeenFork("train.py", 5, 9, 0, 0)
    assert find_step(tmp_path, 1, 0, ("data.py", 5)) is None
    assert find_step(tmp_path, 1, 0, None) is None


def test_ranks_part_at_a_line_in_the_pass_after_which_they_went_on_to_different_lines(tmp_path):
    for rank, lines in ((1, [2, 3, 7, 9, 2, 7, 8]), (0, [2, 3, 7, 9, 2, 7, 9])):
        path = PathFile(str(tmp_path), rank)
        for at, line in enumerate(lines):
            path.add(path.number_of("train.py"), line)
            if rank == 1 and at == 0:
                path.mark()

    assert find_ways(tmp_path, 1, 0, None, ("train.py", 7)) == SeenFork("train.py", 7, 8, 0, 9)
    assert find_ways(tmp_path, 1, 0, None, ("train.py", 2)) is None


def test_a_rank_stopped_at_the_last_line_that_it_executed(tmp_path):
    mine = PathFile(str(tmp_path), 1)
    mine.add(mine.number_of("train.py"), 9)
    mine.mark()

    assert last_line(tmp_path, 1) == ("train.py", 9)
    assert last_line(tmp_path, 3) is None


@for_each(
    "verdict, fork, stopped, alike",
    [
        ({"cause": "inconclusive", "suspects": []}, None, [("train.py", 9), ("train.py", 9)], True),
        ({"cause": "inconclusive", "suspects": []}, None, [("train.py", 9), ("train.py", 3)], False),
        ({"cause": "inconclusive", "suspects": []}, None, [None, None], False),
        ({"cause": "inconclusive", "suspects": [1]}, None, [("train.py", 9), ("train.py", 9)], False),
        ({"cause": "divergent-path", "suspects": []}, None, [("train.py", 9), ("train.py", 9)], False),
        ({"cause": "inconclusive", "suspects": []}, SeenFork("t.py", 2, 3, 0, 4), [("t.py", 9), ("t.py", 9)], False),
    ],
)
def test_ranks_that_wait_for_the_same_after_the_same_lines_do_not_part(verdict, fork, stopped, alike):
    trial = Trial(1, "file-differs", 1, TrialTarget(None, (1,)), 0, 0)
    result = TrialResult(trial, TrialOutcome.PARTS, "", 9.0, fork=fork, verdict=verdict)

    assert waits_alike(result, stopped) is alike


ASKS = """import torch.distributed as dist

def read(path):
    if path.broken:
        return None
    return path.rows

def main(path):
    rows = read(path)
    if rows is None:
        dist.barrier()
    dist.all_reduce(rows)

def share(rows):
    if rows.bad:
        return
    dist.all_reduce(rows)

def again(rows):
    share(rows)
    if rows:
        dist.barrier()
"""


def fork_in(folder, mine, theirs):
    """Of rank 1, which is disturbed after the first line of `mine`."""
    (folder / "train.py").write_text(ASKS)
    for rank, lines in ((1, mine), (0, theirs)):
        path = PathFile(str(folder), rank)
        for at, line in enumerate(lines):
            path.add(path.number_of("train.py"), line)
            if rank == 1 and at == 0:
                path.mark()
    fork = find_fork(folder, 1, 0, None, Silence(analyse(read_program([str(folder)])), []))
    return fork and (fork.line, fork.went_to, fork.other_went_to)


def test_a_fork_in_a_function_that_does_not_communicate_is_where_its_caller_decides(tmp_path):
    assert fork_in(tmp_path, [9, 4, 5, 10, 11], [9, 4, 6, 10, 12]) == (10, 11, 12)


def test_a_fork_stays_in_a_function_that_communicates_or_whose_caller_does_the_same(tmp_path):
    assert fork_in(tmp_path, [20, 15, 16, 21, 22], [20, 15, 17, 21, 22]) == (15, 16, 17)
    assert fork_in(tmp_path, [9, 4, 5, 10, 12], [9, 4, 6, 10, 12]) == (4, 5, 6)


@for_each(
    "load, hangs_now, hangs_if_it_lasts",
    [
        (RanksLoad(0.1, 0.0, 0.1), True, True),  # all wait in a call
        (RanksLoad(4.0, 0.0, 1.0), False, True),  # each waits for its GPU, in a loop
        (RanksLoad(0.1, 0.9, 1.0), False, False),  # the machine is busy
        (RanksLoad(4.0, math.nan, 1.0), False, False),
    ],
)
def test_a_stall_is_a_hang_if_no_rank_waits_for_a_core(load, hangs_now, hangs_if_it_lasts):
    assert (load.shows_hang(lasts=False), load.shows_hang(lasts=True)) == (hangs_now, hangs_if_it_lasts)


def uses(rank, *found, world=4):
    return RankUses(rank, world, 10, 10, tuple(found))


def loader(rank, shared_out="0", ends="1", content=""):
    facts = {
        "shared_out": shared_out,
        "own_collate": "0",
        "iterable": "0",
        "workers": "0",
        "batches": "5",
        "ends": ends,
        "content": content,
    }
    return uses(rank, Use(UseKind.LOADER, CodeSite("train.py", 7, "main"), "loader 0", 1, (5.0,), facts))


def kinds_for(calm):
    trials = plan_trials(calm, Decisions(["/nowhere"]), PERTURBATIONS, None, 0)
    return {trial.kind for trial in trials}


def test_a_sampler_that_shares_data_out_gives_no_rank_a_batch_fewer():
    assert "one-batch-fewer" in kinds_for(Calm(tuple(map(loader, range(4))), 1.0, complete=True))
    assert "one-batch-fewer" not in kinds_for(Calm(tuple(loader(r, "1") for r in range(4)), 1.0, complete=True))


def test_ranks_that_read_the_same_data_have_the_same_luck_with_it():
    def disturbed_ranks(*contents):
        calm = Calm(tuple(loader(r, content=content) for r, content in enumerate(contents)), 1.0, complete=True)
        return {
            t.ranks for t in plan_trials(calm, Decisions(["/nowhere"]), PERTURBATIONS, None, 0) if "batch" in t.kind
        }

    assert disturbed_ranks("a", "b", "c", "d") == {(2,), (0,), (3,)}
    assert not disturbed_ranks("a", "a", "a", "a")
    assert disturbed_ranks("a", "a", "c", "c", "e") == {(0, 1), (2, 3), (4,)}


def test_a_program_that_reads_the_time_is_given_another_one():
    reads = Use(UseKind.CLOCK, CodeSite("train.py", 7, "main"), "time", 9)
    plan = plan_trials(
        Calm((uses(0, reads), uses(1, reads)), 1.0, complete=True), Decisions(["/nowhere"]), PERTURBATIONS, None, 0
    )

    assert [trial.target.settings for trial in plan if trial.kind == "clock" and trial.rank == 1] == [
        {"how": "ahead"},
        {"how": "slow"},
    ]


@for_each(
    "decision, line",
    [
        ("    if time.time() - began > 60:\n        save()\n", 5),
        ("    print(time.time() - began)\n", 4),  # nothing is decided: where it is read most often
    ],
)
def test_a_clock_goes_ahead_where_the_program_decides_by_it(tmp_path_factory, decision, line):
    folder = tmp_path_factory.mktemp("source")
    (folder / "train.py").write_text(f"import time\n\ndef train():\n    began = time.time()\n{decision}")
    begins, asks = (Use(UseKind.CLOCK, CodeSite("train.py", at, "train"), "time", n) for at, n in ((4, 9), (5, 6)))
    calm = Calm((uses(0, begins, asks), uses(1, begins, asks)), 1.0, complete=True)

    ahead, slow = find_perturbation("clock").find(calm, Decisions([str(folder)]))

    assert (ahead.site and ahead.site.line, slow.site) == (line, None)


def test_the_groups_of_a_rank_are_remembered_after_the_program_has_destroyed_them(tmp_path):
    joined = [True]
    world = SimpleNamespace(pg_group_ranks={"mesh": {0: 0, 1: 1}, "theirs": {2: 0, 3: 1}})
    dist = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: joined[0],
        get_world_size=lambda: 4,
        get_rank=lambda: 1,
        distributed_c10d=SimpleNamespace(_world=world),
    )
    order = RunOrder(RunMode.CALM, str(tmp_path), ())
    notes = Notes(InsideRank(SimpleNamespace(distributed=dist), order, lambda: 1, lambda: 0, lambda: None))
    notes.stepped(1)
    joined[0] = False
    notes.write()

    told = read_value(tmp_path / "uses_rank_1.json", RankUses)
    assert told is not None
    assert (told.world, told.groups) == (4, ((0, 1),))


@for_each(
    "read, disturbed",
    [
        (((0.0, 1.0), (0.0, 1.0), (1.0, 0.0), (1.0, 0.0)), {(0, 1), (2, 3)}),  # each group has agreed
        (((0.0, 1.0), (0.0, 0.0), (1.0, 0.0), (1.0, 0.0)), {(0,), (2, 3)}),
        (((0.0, 0.0), (0.0, 0.0), (1.0, 0.0), (0.0, 1.0)), {(0,)}),  # always one value: it may be this rank's own
    ],
)
def test_a_value_on_which_a_group_agrees_is_changed_for_all_of_its_members(read, disturbed):
    site = CodeSite("train.py", 7, "main")
    told = [uses(rank, Use(UseKind.READ, site, "bool", 2, values)) for rank, values in enumerate(read)]
    told = [replace(one, groups=((0, 1, 2, 3), (one.rank // 2 * 2, one.rank // 2 * 2 + 1))) for one in told]
    calm = Calm(tuple(told), 1.0, complete=True)
    targets = find_perturbation("another-value").find(calm, Decisions(["/nowhere"]))

    assert {(target.ranks[0], *target.together) for target in targets} == disturbed


@for_each("source, last", [("names = {'a', 'b'}\n", False), ("names = ['a', 'b']\n", True)])
def test_another_hash_seed_is_tried_after_the_others_if_the_source_has_no_sets(tmp_path_factory, source, last):
    folder = tmp_path_factory.mktemp("source")
    (folder / "train.py").write_text(source)
    reads = [Use(UseKind.CLOCK, CodeSite("train.py", 1, "main"), "time", 9)]
    calm = Calm((uses(0, *reads), uses(1, *reads)), 1.0, complete=True)
    plan = plan_trials(calm, Decisions([str(folder)]), PERTURBATIONS, [1], 0)

    assert (plan[-1].kind == "hash-seed") is last


def test_a_loader_that_nobody_read_to_its_end_is_not_cut():
    assert "one-batch-fewer" not in kinds_for(Calm(tuple(loader(r, ends="0") for r in range(4)), 1.0, complete=True))


def targets(kind, *ranks):
    calm = Calm(tuple(uses(rank, *found) for rank, found in enumerate(ranks)), 1.0, complete=True)
    return list(find_perturbation(kind).find(calm, Decisions(["/nowhere"])))


def test_a_mask_is_emptied_only_where_the_number_it_selects_can_differ():
    def mask(*counts):
        return [Use(UseKind.MASK, CodeSite("train.py", 5, "loss"), "", len(counts), counts)]

    assert targets("empty-mask", mask(4.0, 7.0), mask(5.0, 2.0))[0].occurrences == 2
    assert targets("empty-mask", mask(4.0, 4.0), mask(4.0, 4.0)) == []


def test_predictions_are_read_in_another_order_if_they_are_a_ranks_own(tmp_path):
    def read(value, evaluates):
        facts = {"evaluates": evaluates}
        return [Use(UseKind.READ, CodeSite("train.py", 5, "validate"), "numpy", 1, (value,), facts)]

    assert [target.label for target in targets("another-value", read(1.0, "1"), read(2.0, "1"))] == [
        "numpy, in another order"
    ]
    assert targets("another-value", read(1.0, "1"), read(1.0, "1")) == []  # the same on all ranks
    assert targets("another-value", read(1.0, "0"), read(2.0, "0")) == []  # in training: may be ranks of a group

    site = CodeSite("train.py", 5, "validate")
    assert disturbed(tmp_path, "another-value", {"to": "order"}, site).read(site, "loader 0", [1, 2, 3]) == [2, 3, 1]


def test_of_many_files_asked_for_at_one_line_one_of_each_answer_is_tried():
    def asked(path, there):
        return Use(UseKind.EXISTS, CodeSite("train.py", 5, "read"), path, 1, (there,))

    found = targets("file-differs", [asked("a", 1.0), asked("b", 1.0), asked("c", 0.0)])

    assert [target.label for target in found] == ["a, in truth there", "c, in truth not there"]


def test_a_file_that_the_first_run_made_is_missed_in_a_second_one():
    def asked(path, *there):
        return Use(UseKind.EXISTS, CodeSite("train.py", 5, "read"), path, len(there), there)

    first, second = (uses(0, asked("cache", there), asked("given", 1.0)) for there in (0.0, 1.0))
    calm = Calm((first,), 1.0, complete=True, again=(second,))

    found = find_perturbation("file-differs").find(calm, Decisions(["/nowhere"]))

    assert [(target.what, RESUMED in target.settings) for target in found] == [
        ("cache", False),
        ("given", False),
        ("cache", True),
    ]


def test_what_workers_of_a_loader_used_is_added_to_their_rank():
    site = CodeSite("data.py", 5, "read")
    workers = [uses(0, Use(UseKind.GUARDED, site, "load", count)) for count in (8, 4)]

    merged = merge_workers([uses(1), uses(0, Use(UseKind.CLOCK, site, "time", 3)), *workers])

    assert [(told.rank, [(use.kind, use.count) for use in told.uses]) for told in merged] == [
        (0, [(UseKind.CLOCK, 3), (UseKind.GUARDED, 12)]),
        (1, []),
    ]


def test_an_exception_comes_once_or_until_quick_attempts_are_over(tmp_path):
    site = CodeSite("train.py", 5, "read")
    once, long = (disturbed(tmp_path, "exception-in-try", {"how": how}, site) for how in ("once", "long"))

    for rank in (once, long):
        with pytest.raises(OSError, match="rehearsed"):
            rank.guarded(site, "loader 0", (OSError,))
    once.guarded(site, "loader 0", (OSError,))
    with pytest.raises(OSError, match="rehearsed"):
        long.guarded(site, "loader 0", (OSError,))


def test_an_empty_batch_is_what_the_programs_own_function_makes_of_no_sample(tmp_path):
    rank = disturbed(tmp_path, "short-batch", {"size": "no"})

    assert list(rank.batches(None, replace(FACTS, collate=lambda samples: samples or None), iter(["a", "b"]))) == [
        None,
        "b",
    ]


def test_a_rank_marks_its_path_when_it_takes_a_batch_after_a_worker_was_disturbed(tmp_path):
    marks = []
    site = CodeSite("train.py", 5, "read")
    target = TrialTarget(site, (1,), "load", settings={"how": "once"})
    order = RunOrder(RunMode.TRIAL, str(tmp_path), (), Trial(1, "exception-in-try", 1, target, 0, 0))
    inside = InsideRank(FakeTorch, order, lambda: 1, lambda: 0, lambda: marks.append(len(taken)))
    taken = []
    for batch in find_perturbation("exception-in-try")(inside).batches(None, replace(FACTS, workers=1), iter("abc")):
        taken.append(batch)
        if batch == "a":
            write_value(tmp_path / "effect.json", Effect(1, "load raised OSError", site, 0, 1.0))

    assert taken == ["a", "b", "c"]
    assert marks == [1]


def disturbed(tmp_path, kind, settings, site=None):
    """A perturbation as it is in its rank, at its first occasion."""
    target = TrialTarget(site, (1,), "loader 0", settings=settings)
    order = RunOrder(RunMode.TRIAL, str(tmp_path), (), Trial(1, kind, 1, target, 0, 0))
    return find_perturbation(kind)(InsideRank(FakeTorch, order, lambda: 1, lambda: 0, lambda: None))


class FakeTorch:
    @staticmethod
    def get_rng_state():
        return None

    @staticmethod
    def set_rng_state(state):
        assert state is None


FACTS = LoaderFacts(
    number=0,
    batches=0,
    iterable=False,
    shared_out=False,
    own_collate=True,
    drops=False,
    workers=0,
    samples=["long text", "short", "another long text"],
    batch_size=2,
    collate="|".join,
)


def test_a_loader_that_ends_early_does_not_make_its_last_batch(tmp_path):
    made = []
    batches = (made.append(number) or number for number in range(3))

    given = list(disturbed(tmp_path, "one-batch-fewer", {"batches": "3"}).batches(None, FACTS, batches))

    assert given == made == [0, 1]


def test_a_batch_of_small_samples_is_put_together_by_the_programs_own_function(tmp_path):
    given = {}
    for which in ("smallest", "largest"):
        rank = disturbed(tmp_path, "small-samples", {"which": which})
        given[which] = list(rank.batches(None, FACTS, iter(["a|b", "c|d"])))

    assert given == {"smallest": ["short|short", "c|d"], "largest": ["another long text|another long text", "c|d"]}


def test_a_sample_shorter_than_all_of_them_is_cut_where_lengths_differ(tmp_path):
    samples = [{"ids": list(range(n)), "label": "x", "size": (4, 4)} for n in (16, 20, 24)]
    facts = replace(FACTS, samples=samples, collate=lambda rows: rows)

    given = next(disturbed(tmp_path, "small-samples", {"which": "shorter"}).batches(None, facts, iter([None])))

    assert given == [{"ids": [0, 1, 2, 3], "label": "x", "size": (4, 4)}] * FACTS.batch_size


def test_a_padded_row_is_shortened_by_zeros(tmp_path):
    import torch  # noqa: PLC0415 no other test of this file needs it

    samples = [torch.tensor([*range(1, n), *[0] * (20 - n)]) for n in (9, 12, 16)]
    facts = replace(FACTS, samples=samples, collate=lambda rows: rows[0].tolist())

    given = next(disturbed(tmp_path, "small-samples", {"which": "shorter"}).batches(None, facts, iter([None])))

    assert given == [1, 2, *[0] * 17]


def test_the_lists_of_a_generator_get_small_samples_of_their_own(tmp_path):
    facts = GeneratorFacts("batches_of", by_data=False)
    lists = [[{"ids": [1, 2]}, {"ids": [3]}], [{"ids": [4]}, {"ids": [5]}], [["a", "bc"], "d"]]

    def given(which, number):
        rank = disturbed(tmp_path, "small-samples", {"which": which})
        rank.trial = replace(rank.trial, target=replace(rank.trial.target, what=facts.what))
        return list(rank.generated(CodeSite("train.py", 3, "main"), facts, iter(lists)))[number]

    assert given("smallest", 0) == [{"ids": [3]}, {"ids": [3]}]
    assert given("smallest", 1) == lists[1]
    assert given("shorter", 2) == lists[2]


@for_each(
    "item, differ",
    [
        ([{"ids": [1]}, {"ids": [1, 2]}], True),
        ([[1, 2], [3]], True),
        ([[1, 2], [3, 4]], False),
        (["a", "bc"], False),
        (("a", [1, 2]), False),
        ([{"ids": [1]}], False),
        ([object(), object()], False),
    ],
)
def test_samples_are_told_from_the_fields_of_a_record(item, differ):
    assert differ_in_size(item) is differ


def test_a_rank_that_is_told_of_no_room_stays_so(tmp_path):
    rank = disturbed(tmp_path, "no-room", {})
    site = CodeSite("train.py", 3, "save")
    rank.trial = replace(rank.trial, target=replace(rank.trial.target, what="disk_usage"), at=1)

    assert [rank.room(site, "disk_usage", 9, lambda _: 0) for _ in range(3)] == [9, 0, 0]
    assert rank.room(site, "statvfs", 9, lambda _: 0) == 9


def test_ranks_with_the_same_data_are_disturbed_together_and_one_of_them_tells(tmp_path):
    target = TrialTarget(None, (0,), "loader 0", settings={"batches": "3"}, together=(3,))
    order = RunOrder(RunMode.TRIAL, str(tmp_path), (), Trial(1, "one-batch-fewer", 0, target, 0, 0))
    given = {}
    for number in (3, 1, 0):
        inside = InsideRank(FakeTorch, order, lambda number=number: number, lambda: 0, lambda: None)
        given[number] = len(list(find_perturbation("one-batch-fewer")(inside).batches(None, FACTS, iter(range(3)))))
        assert (tmp_path / "effect.json").exists() is (number == 0)

    assert given == {3: 2, 1: 3, 0: 2}


def test_the_newest_checkpoint_is_hidden_with_its_folder_wherever_it_is_asked_for(tmp_path):
    settings = {RESUMED: "", "newest": "saved/12/model.pt"}
    rank = disturbed(tmp_path, "older-checkpoint", settings, CodeSite("train.py", 7, "load"))
    asking = CodeSite("train.py", 3, "find")

    assert rank.listing(asking, "saved", ["11", "12"]) == ["11"]
    assert not rank.exists(asking, "saved/12/model.pt", there=True)
    assert rank.exists(asking, "saved", there=True)


def test_an_older_version_is_read_in_place_of_the_newest(tmp_path):
    settings = {RESUMED: "older/last.pt", "newest": "last.pt"}
    rank = disturbed(tmp_path, "older-checkpoint", settings, CodeSite("train.py", 7, "load"))

    assert rank.loading(CodeSite("train.py", 7, "load"), "last.pt") == "older/last.pt"
    assert rank.loading(CodeSite("train.py", 8, "load"), "other.pt") == "other.pt"


def test_samples_of_one_size_make_no_small_batch(tmp_path):
    same = replace(FACTS, samples=["one", "two"])

    assert list(disturbed(tmp_path, "small-samples", {"which": "smallest"}).batches(None, same, iter(["a|b"]))) == [
        "a|b"
    ]


def test_a_rank_of_every_role_is_chosen():
    writes = Use(UseKind.WRITE, CodeSite("train.py", 9, "main"), "log", 1)
    calm = Calm((uses(0), uses(1, writes), uses(2), uses(3)), 1.0, complete=True)

    assert choose_ranks(calm) == (2, 0, 3, 1)


def test_ranks_that_have_files_of_their_own_have_one_role():
    own = [uses(rank, Use(UseKind.WRITE, CodeSite("train.py", 9, "main"), f"part{rank}", 1)) for rank in range(4)]

    assert choose_ranks(Calm(tuple(own), 1.0, complete=True)) == (2, 0, 3)


def test_the_path_is_compared_with_a_rank_that_does_the_same():
    writes = Use(UseKind.WRITE, CodeSite("train.py", 9, "main"), "log", 1)
    calm = Calm((uses(0, writes), uses(1), uses(2), uses(3)), 1.0, complete=True)

    assert [choose_other(ranks, calm) for ranks in ((2,), (1,), (0,), (0, 1))] == [1, 2, 1, 2]


@for_each(
    "cause, code, outcome",
    [
        ("inconclusive", 0, TrialOutcome.AGREES),
        ("host-stall", 0, TrialOutcome.AGREES),
        ("divergent-path", 0, TrialOutcome.PARTS),
        ("inconclusive", -6, TrialOutcome.PARTS),
    ],
)
def test_what_looked_like_a_hang_is_none_where_all_ranks_ended_in_order(tmp_path_factory, cause, code, outcome):
    place = Workspace(tmp_path_factory.mktemp("run"))
    place.guard.mkdir()
    (place.guard / "verdict.json").write_text(json.dumps({"cause": cause, "summary": "Ranks wait.", "suspects": []}))
    effect = Effect(1, "its strings have different hashes", None, 0, 1.0)
    ended = Ended(9.0, {0: 0, 1: code}, (0, 1), place.guard, effect, (), {0: 5, 1: 5}, "all ended")

    result = judge_trial(Trial(1, "hash-seed", 1, TrialTarget(None, (1,)), 0, 0), ended, place)
    assert result.outcome is outcome
    if (
        result.verdict is not None and cause == "divergent-path"
    ):  # the engine names nobody, but only one rank was disturbed
        assert result.verdict["suspects"] == [1]


@for_each(
    "cause, last_words, outcome",
    [
        ("inconclusive", MOVED, TrialOutcome.NOT_REACHED),
        ("inconclusive", "waiting", TrialOutcome.PARTS),
        ("divergent-path", MOVED, TrialOutcome.PARTS),
    ],
)
def test_a_hang_that_the_guard_takes_back_is_none(tmp_path_factory, cause, last_words, outcome):
    place = Workspace(tmp_path_factory.mktemp("run"))
    for folder in (place.guard, place.logs):
        folder.mkdir()
    (place.guard / "verdict.json").write_text(json.dumps({"cause": cause, "summary": "Ranks wait.", "suspects": []}))
    (place.logs / "log_rank_0.txt").write_text(f"step 3\n{last_words}; it is not ended\n")
    effect = Effect(1, "it had drawn one more random number", None, 0, 1.0)
    ended = Ended(9.0, {}, (), place.guard, effect, (), {0: 5, 1: 5}, "alarm")

    assert judge_trial(Trial(1, "random-seed", 1, TrialTarget(None, (1,)), 0, 0), ended, place).outcome is outcome


def test_the_guards_words_are_known():
    source = Path(forkpoint.__file__).with_name("guard") / "session.py"

    assert MOVED in source.read_text()


def test_a_job_that_fails_undisturbed_is_not_rehearsed(tmp_path):
    place = Workspace(tmp_path)
    place.logs.mkdir()
    (place.logs / "log_rank_0.txt").write_text(
        'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\nValueError: mine\n'
    )
    ended = Ended(1.0, {0: 1, 1: -9}, (0, 1), None, None, (), {}, "failed")

    with pytest.raises(CalmRunFailed, match="before anything was disturbed: rank 0: ValueError: mine"):
        check_calm(ended, (), place)


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
    target = TrialTarget(CodeSite("train.py", 3, "main"), (0,), label="nan")

    assert Trial(1, "not-a-number", 0, target, 0, 0).name == "not-a-number at train.py:3 (nan), rank 0"


@for_each(
    "seconds, cpu_s, first_is_early",
    [(5.0, 3.0, False), (60.0, 30.0, True), (40.0, 3.0, False), (90.0, 3.0, True)],
    ids=["short", "long", "short on a busy machine", "waits"],
)
def test_a_short_job_is_first_disturbed_in_the_middle_and_a_long_one_early(seconds, cpu_s, first_is_early):
    draw = Use(UseKind.DRAW, CodeSite("train.py", 3, "main"), "rand", 90)
    draws = [replace(uses(rank, draw), cpu_s=cpu_s) for rank in range(4)]
    trials = plan_trials(Calm(tuple(draws), seconds, complete=True), Decisions(["/nowhere"]), PERTURBATIONS, None, 0)
    moments = [trial.at < 3 for trial in trials if trial.kind == "random-seed"]

    assert moments == [first_is_early, not first_is_early, not first_is_early]


def test_trials_that_need_new_processes_come_last_for_other_ranks():
    draws = [uses(rank, Use(UseKind.DRAW, CodeSite("train.py", 3, "main"), "rand", 90)) for rank in range(4)]
    trials = plan_trials(Calm(tuple(draws), 1.0, complete=True), Decisions(["/nowhere"]), PERTURBATIONS, None, 0)

    assert [trial.kind for trial in trials][-2:] == ["hash-seed", "hash-seed"]
    assert [trial.number for trial in trials] == list(range(1, len(trials) + 1))


def test_early_is_among_the_first_occasions_and_later_is_the_middle_of_the_run():
    often = TrialTarget(CodeSite("train.py", 3, "main"), (0,), "item", 90)
    seldom = replace(often, occurrences=2)

    def moments(target, *, early, phase):
        return {choose_moment(target, random.Random(n), early=early, phase=phase) for n in range(90)}

    accumulates = replace(often, per_step=4)

    assert [moments(often, early=True, phase=phase) for phase in (0, 1, 2)] == [{1}, {0, 2}, {1}]
    assert moments(often, early=False, phase=0) == set(range(31, 60, 2))
    assert moments(often, early=False, phase=1) == set(range(30, 60, 2))
    assert moments(seldom, early=False, phase=1) == {0}
    assert moments(accumulates, early=True, phase=0) == {3}  # the fourth pass, before the step
    assert moments(accumulates, early=False, phase=0) == set(range(31, 60, 4))


def test_passes_are_counted_for_each_step_of_the_optimizer():
    def used(forward, backward):
        site = CodeSite("train.py", 3, "main")
        return [Use(UseKind.FORWARD, site, "", forward), Use(UseKind.BACKWARD, site, "", backward)]

    found = targets("out-of-memory", used(8, 40))  # calls of modules are noted for two of the ten steps

    assert [(target.label, target.per_step, target.occurrences) for target in found] == [
        ("forward", 4, 40),
        ("backward", 4, 40),
    ]
