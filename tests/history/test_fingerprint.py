"""Which incidents are the same fork: the same bug after a shift or a move, and never two bugs."""

from dataclasses import replace

import verdicts
from cases import read_case
from forkpoint.history.incident import find_fingerprint, find_role
from forkpoint.model.capture import Capture, LiveStack
from forkpoint.model.entries import Tables
from forkpoint.model.incident import Cohort
from forkpoint.model.op import Frame, Stack
from forkpoint.model.verdict import Cause, Verdict
from forkpoint.model.world import ProcessGroup
from forkpoint.pipeline import diagnose
from looping import for_each

NOTHING = Capture((), Tables({}, {}, {}))
FOUND = verdicts.FOUND
WAITING: Stack = (
    Frame("all_reduce", verdicts.TORCH + "distributed_c10d.py", 3068),
    Frame("reduce_grads", verdicts.TRAINER + "optim.py", 88),
    Frame("train_step", verdicts.TRAINER + "train.py", 20),
    Frame("<module>", verdicts.TRAINER + "train.py", 42),
)


def with_stacks(left: Stack, stayed: Stack = WAITING, **changes: object) -> Verdict:
    assert FOUND.divergence
    others, suspect = FOUND.divergence.cohorts
    fork = replace(FOUND.divergence, cohorts=(replace(others, stack=stayed), replace(suspect, stack=left)))
    return replace(FOUND, divergence=replace(fork, **changes))


def moved(stack: Stack) -> Stack:
    """A commit later: other lines, another directory, other files."""
    return tuple(
        frame if "torch" in frame.filename else Frame(frame.name, f"/scratch/j/engine/part_{at}.py", frame.line + 31)
        for at, frame in enumerate(stack)
    )


def key(verdict: Verdict, capture: Capture = NOTHING, job: str | None = None) -> str | None:
    found = find_fingerprint(verdict, capture, job)
    return found.key if found else None


BUG = with_stacks(verdicts.SKIPPED_BY_OTHERS)


def test_a_bug_keeps_its_fingerprint_when_lines_shift_and_files_move() -> None:
    assert key(with_stacks(moved(verdicts.SKIPPED_BY_OTHERS), moved(WAITING))) == key(BUG)


def test_ranks_sizes_seqs_and_the_number_of_a_group_do_not_matter() -> None:
    assert BUG.divergence
    others, suspect = BUG.divergence.cohorts
    group = ProcessGroup("17", "default_pg", tuple(range(8)))
    fork = replace(
        BUG.divergence,
        group=group,
        seq=9001,
        first_visible_seq=9001,
        cohorts=(replace(others, ranks=(0, 1, 2, 3, 5, 6, 7), sizes=((9,),)), replace(suspect, ranks=(4,))),
    )
    elsewhere = replace(BUG, divergence=fork, suspects=(4,), coverage=replace(BUG.coverage, ranks=8))

    assert key(elsewhere) == key(BUG)


def test_how_deep_a_function_calls_itself_and_how_the_program_is_started_do_not_matter() -> None:
    compute = verdicts.SKIPPED_BY_OTHERS[2]
    deeper = (*verdicts.SKIPPED_BY_OTHERS[:2], compute, compute, *verdicts.SKIPPED_BY_OTHERS[2:-1])

    assert key(with_stacks(deeper)) == key(BUG)


@for_each(
    "other",
    [
        with_stacks((Frame("save", "/x/train.py", 15), *verdicts.SKIPPED_BY_OTHERS[3:])),
        with_stacks(verdicts.SKIPPED_BY_OTHERS, (Frame("sync_eval", "/x/eval.py", 3), *WAITING[2:])),
        with_stacks(verdicts.SKIPPED_BY_OTHERS, group=ProcessGroup("3", "mesh_tp", (0, 1, 2, 3))),
        replace(BUG, cause=Cause.HOST_STALL),
    ],
    ids=["suspects elsewhere", "others elsewhere", "another kind of group", "another cause"],
)
def test_a_near_miss_is_another_fork(other: Verdict) -> None:
    assert key(other) not in (None, key(BUG))


def test_another_operation_is_another_fork() -> None:
    assert BUG.divergence
    cohorts = tuple(replace(cohort, op="all_gather") for cohort in BUG.divergence.cohorts)

    assert key(replace(BUG, divergence=replace(BUG.divergence, cohorts=cohorts))) != key(BUG)


def test_without_user_code_there_is_no_fingerprint() -> None:
    assert key(with_stacks(verdicts.SKIPPED_BY_OTHERS[:2], ())) is None


def test_programs_that_are_all_main_are_told_apart_by_file_and_job() -> None:
    def in_main(file: str) -> Verdict:
        return with_stacks((Frame("main", file, 9), Frame("<module>", file, 30)), ())

    here = key(in_main("/a/train.py"), job="one")

    assert here == key(in_main("/b/c/train.py"), job="one")
    assert here != key(in_main("/a/train.py"), job="two")
    assert here != key(in_main("/a/finetune.py"), job="one")


def test_a_rank_that_did_not_come_is_known_by_its_live_stack_not_by_its_last_call() -> None:
    assert FOUND.divergence
    others = FOUND.divergence.cohorts[0]
    behind = Cohort((0,), others.role, None, stack=WAITING)
    stuck = replace(FOUND, divergence=replace(FOUND.divergence, cohorts=(replace(others, stack=WAITING), behind)))
    loader, lock = (
        replace(NOTHING, stacks=(LiveStack(0, "stack_0.txt", 1, (Frame(name, "/x/data.py", 7), *WAITING[2:])),))
        for name in ("read_shard", "take_lock")
    )

    assert len({key(stuck, loader), key(stuck, lock), key(stuck)}) == 3


@for_each(
    "desc, ranks, world, role",
    [
        ("default_pg", range(8), 8, "default"),
        ("undefined", range(8), 8, "default"),
        ("mesh_dp", (0, 2, 4), 8, "dp"),
        ("dp_3", (0, 2, 4), 8, "dp"),
        ("DATA_PARALLEL_GROUP", (0, 2, 4), 8, "dp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", (0, 1), 8, "tp"),
        ("pipeline_parallel_group_2", (0, 4), 8, "pp"),
        ("undefined", (0, 1, 2, 3), 8, "neighbours"),
        ("undefined", (0, 2, 4, 6), 8, "strided"),
        ("half", (0, 1), 8, "half"),
    ],
)
def test_a_group_is_known_by_what_it_is_for(desc: str, ranks: range, world: int, role: str) -> None:
    assert find_role(ProcessGroup("5", desc, tuple(ranks)), world) == role


def test_recorded_incidents_of_different_programs_are_different_forks() -> None:
    keys = [key(diagnose(capture), capture) for capture in map(read_case, ("0001", "0007", "0017", "0042", "0070"))]

    assert None not in keys
    assert len(set(keys)) == len(keys)
