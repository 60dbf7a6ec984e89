"""Ranks that wait for each other in a ring: who may be named, and did they skip a call or swap two?"""

from typing import Any

import forkpoint
from forkpoint.diverge import find_divergences, find_partings
from forkpoint.diverge.align import align
from forkpoint.model.incident import Divergence, PartingKind
from forkpoint.model.verdict import Cause
from small_jobs import MODULE, TORCH, SmallJob

EVERYBODY = {"1": ("counts", (0, 1, 2, 3)), "2": ("norms", (0, 1, 2, 3))}
LOADER: list[dict[str, Any]] = [
    TORCH,
    {"name": "run", "filename": "/train/train.py", "line": 38},
    {"name": "_bootstrap_inner", "filename": "/usr/lib/python3.12/threading.py", "line": 1073},
    {"name": "_bootstrap", "filename": "/usr/lib/python3.12/threading.py", "line": 1030},
]
CALLED_FROM: tuple[tuple[dict[str, Any], tuple[int, ...]], ...] = (({}, (0,)), ({"frames": LOADER}, ()))
"""The main thread, where rank 0 is odd; another one, where nobody is."""


def _fork(job: SmallJob) -> Divergence:
    timeline = align(job.capture())
    return find_divergences(timeline, find_partings(timeline))[0]


def _issue(job: SmallJob, rank: int, *groups: str, **changed: Any) -> None:
    for group in groups:
        job.op(ranks=[rank], group=group, done=False, **changed)


def test_one_rank_that_left_out_what_most_wait_in_is_odd() -> None:
    job = SmallJob(4, groups=EVERYBODY)
    _issue(job, 0, "2")
    for rank in (1, 2, 3):
        _issue(job, rank, "1", "2")

    fork = _fork(job)

    assert fork.odd == (0,)
    assert fork.shift is not None
    assert (fork.group.desc, fork.shift.ranks, fork.shift.by) == ("counts", (0,), 1)


def test_a_rank_that_is_only_less_far_on_a_path_that_others_take_too_is_not_odd() -> None:
    job = SmallJob(4, groups=EVERYBODY)
    _issue(job, 0, "2")
    _issue(job, 1, "2", "1")
    for rank in (2, 3):
        _issue(job, rank, "1", "2")

    fork = _fork(job)

    assert (fork.how, fork.odd, fork.left_order) == (PartingKind.CYCLE, (), False)


def test_a_ring_through_four_groups_of_a_mesh_names_nobody_for_being_the_last_to_come() -> None:
    job = SmallJob(4, groups={"1": ("tp", (0, 1)), "2": ("tp", (2, 3)), "3": ("dp", (0, 2)), "4": ("dp", (1, 3))})
    _issue(job, 0, "1")  # the others issued all of theirs: 1 and 2 begin with dp, 3 with tp
    _issue(job, 1, "4", "1")
    _issue(job, 3, "2", "4")
    _issue(job, 2, "3", "2")

    fork = _fork(job)

    assert (fork.how, fork.odd) == (PartingKind.CYCLE, ())


def test_the_smaller_side_of_a_ring_is_odd_unless_its_calls_come_from_two_threads() -> None:
    for frames, odd in CALLED_FROM:
        job = SmallJob(4, groups=EVERYBODY)
        _issue(job, 0, "1", **frames)
        for rank in (1, 2, 3):
            _issue(job, rank, "2")

        fork = _fork(job)

        assert (fork.how, fork.odd, fork.left_order) == (PartingKind.CYCLE, odd, False)


def test_another_call_in_one_slot_is_odd_unless_it_comes_from_another_thread() -> None:
    for frames, odd in CALLED_FROM:
        job = SmallJob(4)
        job.op()
        job.op(ranks=[0], size=1, done=False, **frames)
        job.op(ranks=[1, 2, 3], size=640, done=False)

        fork = _fork(job)

        assert (fork.how, fork.odd) == (PartingKind.METADATA, odd)


def test_a_job_that_trains_in_a_thread_is_judged_as_any_other() -> None:
    job = SmallJob(4)
    job.op(frames=LOADER)
    job.op(ranks=[0], size=1, done=False, frames=[{**LOADER[1], "line": 52}, *LOADER[1:]])
    job.op(ranks=[1, 2, 3], size=640, done=False, frames=LOADER)

    assert _fork(job).odd == (0,)


def _pipeline(job: SmallJob) -> None:
    """Three stages pass three micro-batches on and their gradients back."""
    for rank in range(3):
        for _ in range(3):
            if rank > 0:
                job.recv(rank, rank - 1)
            if rank < 2:
                job.send(rank, rank + 1)
        for _ in range(3):
            if rank < 2:
                job.recv(rank, rank + 1, line=40)
            if rank > 0:
                job.send(rank, rank - 1, line=50)


def test_of_two_stages_that_wait_for_each_other_neither_is_odd_and_the_one_that_ran_ahead_skipped() -> None:
    job = SmallJob(3)
    for _ in range(3):
        _pipeline(job)
    for _ in range(2):  # what both ends issued
        job.send(0, 1)
        job.recv(1, 0)
        job.send(1, 2)
        job.recv(2, 1)
    job.recv(2, 1, done=False)  # the last stage wants a third
    for _ in range(2):  # the middle one turns to its gradients, and its host goes on to the next step
        job.recv(1, 2, line=40, done=False)
        job.send(1, 0, line=50, done=False)
    for _ in range(3):
        job.recv(1, 0, done=False)
        job.send(1, 2, done=False)

    fork = _fork(job)

    assert (fork.how, fork.odd, fork.left_order) == (PartingKind.CYCLE, (), True)


def test_a_rank_that_issues_its_usual_calls_swapped_did_not_skip_one_even_if_its_host_runs_ahead() -> None:
    job = SmallJob(2, groups={"1": ("counts", (0, 1)), "2": ("norms", (0, 1))})
    lines = {"1": 10, "2": 20, "0": 30}
    for _ in range(3):
        for group, line in lines.items():
            job.op(group=group, line=line)
    for rank, order in ((0, "1201201"), (1, "2101201")):
        for group in order:
            _issue(job, rank, group, line=lines[group])

    fork = _fork(job)

    assert (fork.how, fork.odd, fork.left_order) == (PartingKind.CYCLE, (), False)


def test_a_ring_is_called_another_order_only_where_stacks_could_show_a_skip() -> None:
    job = SmallJob(4, groups=EVERYBODY)
    for rank, groups in ((0, "12"), (1, "12"), (2, "21"), (3, "21")):
        _issue(job, rank, *groups)

    assert forkpoint.diagnose(job.capture()).cause is Cause.ORDER_INVERSION

    for entry in (entry for entries in job.entries.values() for entry in entries):
        del entry["frames"]

    assert forkpoint.diagnose(job.capture()).cause is Cause.INCONCLUSIVE


# ---------------------------------------------------------------------------------------------------------------------
# A line that takes what it calls from a list, a set or a mapping.


def _hook(name: str, line: int, outer: int = 20) -> list[dict[str, Any]]:
    return [
        TORCH,
        {"name": name, "filename": "/train/hooks.py", "line": line},
        {"name": "step", "filename": "/train/train.py", "line": outer},
        MODULE,
    ]


def _other_first(counts: list[dict[str, Any]], norms: list[dict[str, Any]]) -> tuple[Cause, tuple[int, ...]]:
    """Each round sums counts, then norms; in the last one rank 0 is in that of norms, and the others in that of counts."""
    job = SmallJob(4, lib="gloo", groups=EVERYBODY)
    for _ in range(3):
        job.op(group="1", frames=counts)
        job.op(group="2", frames=norms)
    job.op([0], group="2", frames=norms, done=False)
    job.op([1, 2, 3], group="1", frames=counts, done=False)
    verdict = forkpoint.diagnose(job.capture())
    return verdict.cause, verdict.suspects


def test_functions_that_one_line_calls_in_another_order_are_another_order() -> None:
    assert _other_first(_hook("sum_counts", 5), _hook("sum_norms", 9)) == (Cause.ORDER_INVERSION, (0,))


def test_calls_of_two_lines_of_one_function_are_not_in_another_order_but_one_is_left_out() -> None:
    assert _other_first(_hook("sum_all", 5), _hook("sum_all", 9)) == (Cause.DIVERGENT_PATH, (0,))


def test_functions_that_two_lines_call_are_not_taken_from_one_list() -> None:
    assert _other_first(_hook("sum_counts", 5), _hook("sum_norms", 9, outer=21)) == (Cause.DIVERGENT_PATH, (0,))


def test_functions_of_which_no_common_line_is_recorded_are_not_taken_from_one_list() -> None:
    """Recorders keep the innermost frames only."""
    assert _other_first(_hook("sum_counts", 5)[:2], _hook("sum_norms", 9)[:2]) == (Cause.DIVERGENT_PATH, (0,))


def _called(function: str) -> dict[str, Any]:
    """Frames of a call made by one of several functions that one line of the program calls in turn."""
    return {"frames": [TORCH, {"name": function, "filename": "/train/calls.py", "line": len(function)}, MODULE]}


def _round(job: SmallJob, functions: str, ranks: tuple[int, ...] = (0, 1, 2, 3), **changed: Any) -> None:
    """`n` reduces in the group of norms, every other function in that of counts."""
    for function in functions:
        frames = _called(function * (ord(function) - ord("a") + 1))
        job.op(group="2" if function == "n" else "1", ranks=ranks, size=ord(function), **frames, **changed)


def test_a_call_made_once_more_right_after_its_place_in_a_long_round_is_one_too_many_and_the_fork() -> None:
    job = SmallJob(4, groups=EVERYBODY)
    for _ in range(3):
        _round(job, "abcdefghijkn")
    _round(job, "n", (1,), done=False)
    _round(job, "a", (0, 2, 3), done=False)

    fork = _fork(job)

    assert (fork.how, fork.odd, fork.left_order) == (PartingKind.CYCLE, (1,), True)
    assert (str(fork.group), fork.seq) == ("norms", 4)
    assert "rank 1 called all_reduce" in forkpoint.diagnose(job.capture()).summary


def test_a_call_of_a_long_round_that_comes_a_little_early_is_in_another_order() -> None:
    job = SmallJob(4, groups=EVERYBODY)
    for _ in range(3):
        _round(job, "abcdefghijkn")
    _round(job, "abcdefghij")
    _round(job, "n", (1,), done=False)
    _round(job, "k", (0, 2, 3), done=False)

    fork = _fork(job)

    assert (fork.how, fork.odd, fork.left_order) == (PartingKind.CYCLE, (1,), False)


def test_the_last_of_three_calls_made_first_in_the_next_round_may_be_the_round_backwards() -> None:
    job = SmallJob(4, groups=EVERYBODY)
    for _ in range(3):
        _round(job, "abn")
    _round(job, "n", (1,), done=False)
    _round(job, "a", (0, 2, 3), done=False)

    fork = _fork(job)

    assert (fork.how, fork.odd, fork.left_order) == (PartingKind.CYCLE, (1,), False)
    assert str(fork.group) == "counts"
