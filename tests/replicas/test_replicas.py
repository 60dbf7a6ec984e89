"""Replicas between real gloo processes: faults that are planted and found, and a healthy run that stays silent."""

import json
from typing import Any

import pytest

from looping import for_each
from warm import run

pytestmark = pytest.mark.torch

RIGHT = ["right"]
FEW, MANY = (10, 20), (100, 150)
"""Flipped bits and healthy steps: in `make test`, and in `make sweep`."""

Answers = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module", params=[FEW, pytest.param(MANY, marks=pytest.mark.sweep)], ids=["few", "many"])
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    return request.param


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, size: tuple[int, int]) -> Answers:
    """What every rank of every job said."""
    flips, steps = map(str, size)
    env = {"TMPDIR": str(tmp_path_factory.mktemp("ranks")), "REPLICAS_FLIPS": flips, "REPLICAS_STEPS": steps}
    done = run("-m", "replicas.ranks", **env)
    assert done.code == 0, done.err
    return json.loads(done.out)


def said(answers: Answers, job: str, check: str) -> list[Any]:
    return [rank[check] for rank in answers[job]]


def alike(answers: Answers, job: str, check: str) -> dict[str, Any]:
    """What all ranks said: they are told the same (of a layout each says what it has itself)."""
    told = said(answers, job, check)
    assert all({**one, "why": ""} == {**told[0], "why": ""} for one in told)
    return told[0]


def verdict(answers: Answers, job: str, check: str) -> tuple[Any, ...]:
    told = alike(answers, job, check)
    return told["kind"], told["odd"], told["what"], told["tensor"]


# Hardware.


def test_all_flipped_bits_are_found_with_tensor_rank_and_kind(answers: Answers, size: tuple[int, int]) -> None:
    """In parameters, gradients and optimizer state, fp32 and bf16. Flipped back, all is equal again."""
    expected = [*[RIGHT] * (size[0] // 2), True] * 2

    assert said(answers, "flips", "found") == [expected] * 4


@for_each("where", ["parameter", "gradient", "state"])
def test_a_flip_between_two_checks_is_found_at_the_next_one(where: str, answers: Answers) -> None:
    told = said(answers, "faults", f"trained on, {where}")
    first, second, found = told[0]["reports"]

    assert (first["step"], second["step"], first["equal"], second["equal"]) == (1, 10, True, True)
    assert (found["step"], found["last_equal"], found["odd"]) == (20, 10, [2])
    assert found["kind"] == "suspected-hardware"
    assert {tensor.split(".")[0] for tensor in found["tensors"]} == {"0"}
    assert [len(rank["warned"]) for rank in told] == [1, 0, 0, 0]


def test_swapped_elements_are_found(answers: Answers) -> None:
    assert verdict(answers, "plain", "swapped") == ("suspected-hardware", [1], "tensor", "x")


def test_of_two_ranks_both_are_named(answers: Answers) -> None:
    assert verdict(answers, "two", "moving") == ("suspected-hardware", [0, 1], "parameter", "0.weight")
    assert alike(answers, "two", "before")["equal"]
    assert verdict(answers, "two", "frozen")[:2] == ("undecided", [0, 1])


# Software.


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD"])
def test_a_skipped_update_is_software(optimizer: str, answers: Answers) -> None:
    assert verdict(answers, "faults", f"skipped, {optimizer}") == ("software", [1], "update", None)
    assert "rank 1: 19; ranks 0,2-3: 20" in alike(answers, "faults", f"skipped, {optimizer}")["why"]


@pytest.mark.parametrize("every", [1, 5])
def test_a_stale_tensor_is_software_whether_the_step_before_was_checked_or_not(every: int, answers: Answers) -> None:
    assert verdict(answers, "faults", f"stale, every {every}") == ("software", [3], "parameter", "2.weight")


def test_another_learning_rate_is_software(answers: Answers) -> None:
    told = alike(answers, "faults", "another rate")

    assert (told["kind"], told["odd"]) == ("software", [0])
    assert "optimizer.lr" in told["why"]


def test_a_layer_that_goes_its_own_way_is_not_blamed_on_hardware(answers: Answers) -> None:
    assert verdict(answers, "faults", "not reduced") == ("undecided", [1], "parameter", "0.weight")


def test_another_shape_order_or_step_is_software(answers: Answers) -> None:
    assert verdict(answers, "plain", "shapes") == ("software", [3], "layout", None)
    assert verdict(answers, "plain", "order") == ("software", [2], "layout", None)
    assert [(told["kind"], told["odd"], told["what"]) for told in said(answers, "plain", "steps")] == [
        ("software", [3], "step")
    ] * 4
    assert verdict(answers, "plain", "another seed")[0] == "software"


# Votes.


def test_without_a_majority_nobody_is_named(answers: Answers) -> None:
    assert verdict(answers, "plain", "no majority")[:2] == ("undecided", [])


def test_a_group_compares_among_itself(answers: Answers) -> None:
    pairs = said(answers, "plain", "a pair")

    assert [pair["odd"] for pair in pairs] == [[0, 1], [0, 1], [2, 3], [2, 3]]


def test_scalars_and_the_sign_of_zero_are_compared_by_their_bits(answers: Answers) -> None:
    assert verdict(answers, "plain", "scalars") == ("undecided", [2], "scalar", "loss")
    assert alike(answers, "plain", "equal scalars")["equal"]
    assert alike(answers, "plain", "minus zero")["odd"] == [0]


def test_what_may_differ_is_declared(answers: Answers) -> None:
    assert alike(answers, "plain", "declared")["equal"]


def test_asked_to_raise_it_raises_on_all(answers: Answers) -> None:
    assert [odd for odd, _ in said(answers, "plain", "raises")] == [[2]] * 4


# Meshes.


def test_hsdp_shards_are_compared_with_their_replicas_only(answers: Answers) -> None:
    steps = said(answers, "meshes", "hsdp")

    assert all(step["equal"] for rank in steps for step in rank[:2])
    assert [rank[2]["equal"] for rank in steps] == [True, False, True, False]
    assert [rank[2]["odd"] for rank in steps] == [[], [1, 3], [], [1, 3]]
    assert steps[3][2]["tensor"] == "0.weight"


def test_what_tensor_parallelism_replicates_is_compared_over_the_whole_mesh(answers: Answers) -> None:
    assert verdict(answers, "meshes", "tensor parallel") == ("suspected-hardware", [2], "parameter", "norm")


def test_shards_without_replicas_are_left_alone(answers: Answers) -> None:
    assert said(answers, "meshes", "fsdp") == [[True, [[[0, 1, 2, 3], 0]]]] * 4


def test_flat_shards_are_refused_with_a_way_out(answers: Answers) -> None:
    assert all("replicas.watch(tensors=" in told for told in said(answers, "meshes", "flat shards"))


# Healthy.


def test_a_healthy_run_raises_no_alarm(answers: Answers, size: tuple[int, int]) -> None:
    """Dropout, BatchNorm, accumulation, mixed precision, activation checkpointing; gradients are checked, too."""
    for rank in answers["healthy"]:
        assert (rank["checks"], rank["alarms"], rank["warned"]) == (size[1] // 2 + 1, [], [])
        assert rank["differ"]


def test_the_file_says_up_to_which_step_all_was_equal(answers: Answers, size: tuple[int, int]) -> None:
    for number, rank in enumerate(answers["healthy"]):
        start, *equal = [json.loads(line) for line in rank["lines"]]
        assert {line["schema"] for line in (start, *equal)} == {"forkpoint.replicas/1"}
        assert (start["record"], start["rank"], start["world"], start["every"]) == ("start", number, 4, 2)
        assert {line["record"] for line in equal} == {"equal"}
        assert (equal[-1]["since"], equal[-1]["step"]) == (1, size[1])
        assert equal[-1]["groups"][0]["ranks"] == [0, 1, 2, 3]


def test_a_mismatch_is_written_once_with_all_checksums(answers: Answers) -> None:
    for number, rank in enumerate(answers["two"]):
        found = [json.loads(line) for line in rank["lines"]]
        (mismatch,) = [line for line in found if line["record"] == "mismatch" and line["tensor"] == "x"]
        assert (mismatch["rank"], mismatch["step"], mismatch["last_equal"]) == (number, 2, 1)
        assert (mismatch["ranks"], mismatch["odd"], mismatch["what"]) == ([0, 1], [0, 1], "tensor")
        assert mismatch["checksums"]["0"] != mismatch["checksums"]["1"]


# Once more, and without an answer.


def test_a_run_that_repeats_everywhere_clears_the_device(answers: Answers) -> None:
    """The golden computation, and a step with dropout that starts from the same seed."""
    for rank in said(answers, "two", "recheck"):
        assert rank["golden"] == rank["dropout"] == ["same-everywhere", None, []]


def test_a_run_is_transient_persistent_or_says_nothing(answers: Answers) -> None:
    for rank in said(answers, "two", "recheck"):
        assert rank["transient"] == ["transient", 1, []]
        assert rank["persistent"] == ["persistent", 1, []]
        assert rank["fails"] == rank["does not repeat"] == ["cannot-say", None, []]


def test_a_rank_that_does_not_come_ends_the_watching_and_not_the_job(answers: Answers) -> None:
    (reports, warned), _ = said(answers, "two", "late")

    assert reports == [None, None]
    assert len(warned) == 1
    assert "stops watching at step 2: not all ranks reached the check" in warned[0]
