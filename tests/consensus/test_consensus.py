"""Agreements between real gloo processes. One job of four ranks carries most of it; the others lose a rank each."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from looping import for_each
from warm import run

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "consensus.md"

Answers = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What every rank of every job said."""
    done = run("-m", "consensus.ranks", str(PAGE), TMPDIR=str(tmp_path_factory.mktemp("ranks")))
    assert done.code == 0, done.err
    return json.loads(done.out)


def said(answers: Answers, check: str, job: str = "healthy") -> list[Any]:
    return [rank[check] for rank in answers[job]]


def raised(answers: Answers, check: str, job: str = "healthy") -> list[str | None]:
    return [answer["raised"] if isinstance(answer, dict) else None for answer in said(answers, check, job)]


def messages(answers: Answers, check: str, job: str = "healthy") -> set[str]:
    return {answer["says"] for answer in said(answers, check, job) if isinstance(answer, dict)}


# Decisions.


def test_nobody_is_left_behind_after_all_that_went_wrong(answers: Answers) -> None:
    assert said(answers, "end") == [4.0] * 4


def test_a_flag_of_one_rank_reaches_all(answers: Answers) -> None:
    assert said(answers, "any") == [[True, False, True]] * 4
    assert said(answers, "all") == [[False, True, False]] * 4


def test_a_decision_is_made_on_one_rank_and_heard_on_all(answers: Answers) -> None:
    assert said(answers, "short") == [{"rank": 3, "at": [1, 2.5, None]}] * 4
    assert said(answers, "long") == [["x" * 1000, 1, "ä" * 300]] * 4


def test_a_decision_that_fails_fails_everywhere_and_names_the_rank(answers: Answers) -> None:
    assert raised(answers, "undecided") == ["PeerFailed"] * 4
    (message,) = messages(answers, "undecided")
    assert "rank 2 failed in" in message
    assert "'learning rate'" in message
    assert message.endswith("ZeroDivisionError: integer division or modulo by zero")
    assert "ZeroDivisionError" in said(answers, "undecided")[2]["cause"]


def test_a_decision_is_not_data(answers: Answers) -> None:
    assert raised(answers, "too long") == ["PeerFailed"] * 4


def test_the_source_of_a_decision_must_be_in_the_group(answers: Answers) -> None:
    assert raised(answers, "no such source") == ["ValueError"] * 4
    assert raised(answers, "source outside") == ["NotAMember", *["ValueError"] * 3]


def test_a_collective_inside_a_decision_is_refused_for_all(answers: Answers) -> None:
    for check in ("decided by a collective", "decided by an agreement"):
        assert raised(answers, check) == ["PeerFailed"] * 4
        assert all("CollectiveInRankZero" in message for message in messages(answers, check))


def test_ranks_that_ask_different_things_notice(answers: Answers) -> None:
    assert raised(answers, "two sources") == ["RanksDisagree"] * 4
    assert raised(answers, "another question") == ["RanksDisagree"] * 4
    assert {tuple(answer["odd"]) for answer in said(answers, "another question")} == {(1,)}


# Values.


def test_an_equal_value_comes_back(answers: Answers) -> None:
    assert said(answers, "same") == [[1, 2.5]] * 4


def test_an_odd_rank_is_named_with_both_values_on_every_rank(answers: Answers) -> None:
    assert raised(answers, "odd") == ["RanksDisagree"] * 4
    assert messages(answers, "odd") == {
        "ranks disagree on 'micro-batches', rank 2 differs from the majority: rank 2: 7; ranks 0-1,3: 8"
    }


@pytest.mark.parametrize("check", ["tie", "two odd"])
def test_nobody_is_odd_without_a_majority(check: str, answers: Answers) -> None:
    assert raised(answers, check) == ["RanksDisagree"] * 4
    assert [answer["odd"] for answer in said(answers, check)] == [[]] * 4
    assert all("no majority" in message for message in messages(answers, check))


def test_long_values_are_compared_whole_and_shown_in_part(answers: Answers) -> None:
    (message,) = messages(answers, "long values")

    assert "rank 3 differs" in message
    assert message.endswith("(equal as far as shown)")
    assert len(message) < 600


def test_a_value_that_cannot_be_compared_on_one_rank_is_everybodys_error(answers: Answers) -> None:
    assert raised(answers, "not json") == ["PeerFailed"] * 4
    assert all("rank 1 failed" in message for message in messages(answers, "not json"))


# Exceptions.


def test_a_block_without_an_exception_goes_on(answers: Answers) -> None:
    assert said(answers, "no exception") == [["done", []]] * 4


@for_each(
    ("check", "own", "error"),
    [
        ("exception", {1}, "ValueError"),
        ("two exceptions", {1, 2}, "ValueError"),
        ("exit", {0}, "SystemExit"),
        ("nested", {3}, "KeyError"),
        ("wrapped", {0}, "KeyError"),
        ("agreement inside", {1}, "ValueError"),
    ],
)
def test_who_raised_raises_its_own_and_the_others_hear_of_it(
    check: str, own: set[int], error: str, answers: Answers
) -> None:
    assert raised(answers, check) == [error if rank in own else "PeerFailed" for rank in range(4)]
    assert all(answer["failed"] == sorted(own) for rank, answer in enumerate(said(answers, check)) if rank not in own)


def test_a_collective_inside_the_block_is_warned_of(answers: Answers) -> None:
    for _, warnings in said(answers, "collective inside"):
        assert len(warnings) == 1
        assert warnings[0].startswith("checks.py: agree_on_exception: collectives ran inside its block (1)")
    assert said(answers, "only agreements inside") == [[True, []]] * 4


# Loaders.


def test_all_stop_with_the_shortest_loader(answers: Answers) -> None:
    assert said(answers, "shortest") == [[0, 1]] * 4
    assert said(answers, "empty") == [[]] * 4


def test_padding_loses_nothing_and_says_what_it_repeats(answers: Answers) -> None:
    assert said(answers, "padded") == [
        [[0, False], [1, False], [2, False], [2, True]],
        [[0, False], [1, False], [1, True], [1, True]],
        [[0, False], [1, False], [2, False], [3, False]],
        [[0, False], [1, False], [2, False], [2, True]],
    ]
    assert said(answers, "all empty") == [[]] * 4


def test_a_rank_without_any_batch_has_none_to_repeat(answers: Answers) -> None:
    assert raised(answers, "none to repeat") == ["PeerFailed"] * 4
    assert [answer["failed"] for answer in said(answers, "none to repeat")] == [[0]] * 4


def test_a_loader_that_raises_ends_the_loop_everywhere(answers: Answers) -> None:
    assert raised(answers, "loader raises") == ["PeerFailed", "PeerFailed", "PeerFailed", "OSError"]


# Sub-groups.


def test_members_of_a_subgroup_agree_and_others_are_turned_away(answers: Answers) -> None:
    assert said(answers, "member")[1::2] == [[True, False]] * 2
    assert said(answers, "batches")[1::2] == [["a"]] * 2
    for check in ("member", "outside the block", "batches"):
        assert raised(answers, check)[::2] == ["NotAMember"] * 2


def test_in_a_subgroup_ranks_are_global(answers: Answers) -> None:
    assert [answer["odd"] for answer in said(answers, "odd of three")[1:]] == [[3]] * 3
    assert said(answers, "source by global rank")[1:] == [3] * 3


# One rank alone.


@for_each(
    ("check", "op"),
    [
        ("all_reduce inside", "c10d.allreduce_"),
        ("objects inside", "c10d.allgather_"),
        ("barrier inside", "c10d.barrier"),
        ("functional inside", "_c10d_functional.all_reduce"),
        ("compiled inside", "_c10d_functional.all_reduce"),
        ("DDP model inside", "c10d.broadcast_"),
        ("DTensor inside", "_c10d_functional.all_gather_into_tensor"),
        ("DTensor op inside", "_c10d_functional."),
        ("agreement of one", "c10d.allreduce_"),
    ],
)
def test_a_collective_on_rank_zero_alone_is_refused_at_its_line(check: str, op: str, answers: Answers) -> None:
    assert raised(answers, check) == ["CollectiveInRankZero", None, None, None]
    (message,) = messages(answers, check)
    assert message.startswith(op)
    assert re.search(r"checks\.py:\d+: ", message)


def test_what_is_no_collective_of_several_ranks_is_let_through(answers: Answers) -> None:
    assert said(answers, "plain inside") == [3, None, None, None]
    assert said(answers, "group of one inside") == [None] * 4
    assert said(answers, "backward of a plain model") == [None] * 4
    assert said(answers, "message inside") == [[1.0, 0.0], [None, 0.0], [None, 0.0], [None, 1.0]]


def test_another_rank_can_be_the_one(answers: Answers) -> None:
    assert said(answers, "on rank 2") == [None, None, 2, None]


def test_agreements_leave_gradients_and_compiled_functions_alone(answers: Answers) -> None:
    assert said(answers, "compiled") == [[9.0, [2.0, 2.0, 2.0]]] * 4
    assert said(answers, "inference mode") == [[True, True]] * 4


# Ranks that do not come.


def test_a_rank_that_is_late_but_in_time_is_waited_for(answers: Answers) -> None:
    assert said(answers, "vote", "slow") == [True, True]


def test_a_rank_that_never_comes_is_named_by_those_who_wait(answers: Answers) -> None:
    waiting = said(answers, "vote", "late")[:2]

    assert [answer["raised"] for answer in waiting] == ["NoAgreement"] * 2
    assert [answer["absent"] for answer in waiting] == [[2]] * 2
    assert all(
        answer["says"].startswith("no agreement on 'stop early' (any_rank): rank 2 did not come") for answer in waiting
    )


def test_a_rank_that_comes_too_late_is_told_so(answers: Answers) -> None:
    too_late = said(answers, "vote", "late")[2]

    assert too_late["raised"] == "NoAgreement"
    assert "this rank came after rank" in too_late["says"]


def test_a_rank_that_died_is_named_and_an_own_error_is_not_lost(answers: Answers) -> None:
    first, died, third = answers["dead"]

    assert died == {}
    assert (first["vote"]["raised"], first["vote"]["absent"]) == ("NoAgreement", [1])
    assert (third["vote"]["raised"], third["vote"]["says"]) == ("ValueError", "record 17")
    assert "the other ranks could not be informed" in third["vote"]["notes"][0]


def test_without_the_store_nobody_is_named_and_the_error_still_comes(answers: Answers) -> None:
    answer = answers["store stopped"][1]["vote"]

    assert (answer["raised"], answer["absent"]) == ("NoAgreement", None)
    assert "not known" in answer["says"]


def test_without_torch_distributed_a_process_agrees_with_itself(answers: Answers) -> None:
    (alone,) = answers["world of one"]

    assert alone["any"] == [True, False, True, False]
    assert (alone["same"], alone["decision"], alone["batches"]) == ([1], [1, "x" * 1000], [0, 1, 2])
    assert (alone["undecided"]["raised"], alone["exception"]["raised"]) == ("PeerFailed", "ValueError")
    assert alone["rank zero"] == "ran"


# The page.


AFTER = {
    "any_rank": [None, None],
    "all_ranks": [None, None],
    "same_on_all_ranks": ["RanksDisagree", "RanksDisagree"],
    "broadcast_decision": ["saved", "saved"],
    "agree_on_exception": ["PeerFailed", "ValueError"],
    "join_uneven": ["14", "14"],
    "rank_zero_only": ["torch.Size([3, 2])", None],
}


def test_every_section_of_the_page_has_its_examples() -> None:
    from consensus.examples import ARGUMENTS, sections  # noqa: PLC0415 it imports torch, which other workers can do without

    assert list(sections(PAGE)) == list(ARGUMENTS) == list(AFTER)
    assert all(len(codes) >= 2 for codes in sections(PAGE).values())


@for_each("section", list(AFTER))
def test_an_example_leaves_a_rank_waiting_before_and_none_after(section: str, answers: Answers) -> None:
    before = said(answers, "result", f"{section} before")
    after = said(answers, "result", f"{section} after")

    assert "RuntimeError" in [answer["raised"] for answer in before if isinstance(answer, dict)]
    assert [answer["raised"] if isinstance(answer, dict) else answer for answer in after] == [
        str(expected) if expected is None else expected for expected in AFTER[section]
    ]


def test_importing_forkpoint_does_not_import_torch() -> None:
    code = "import sys, forkpoint, forkpoint.cli; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
