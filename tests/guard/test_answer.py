"""What is asked and answered goes through a store that anyone may reach: it must not choose what a rank writes where."""

import msgspec
import pytest

from forkpoint.guard.messages import Ask, RankAnswer, decode, decode_ask, encode
from forkpoint.model.world import ProcessGroup
from looping import for_each

pytestmark = pytest.mark.torch

ANSWER = RankAnswer(2, 4, (ProcessGroup("1", "dp", (0, 2)),), "Thread 1", {7: {"0": 41}}, b"\x80\x02}\n.")


def test_asks_and_answers_survive_the_journey() -> None:
    assert decode(encode(ANSWER), RankAnswer) == ANSWER
    ask = Ask(3, (0, 5), "20261115-101010")
    assert decode_ask(encode(ask)) == ask


@for_each("keep", ["/etc", "../x", "20261115-101010/..", "a", "20261115-101010\n"])
def test_a_folder_that_is_no_time_is_not_taken(keep) -> None:
    assert decode_ask(encode({"number": 1, "keep": keep})).keep == ""


@for_each("rank", ["../../x", None, [], "2/3"])
def test_a_rank_that_is_no_number_makes_no_answer(rank) -> None:
    forged = encode(msgspec.msgpack.decode(encode(ANSWER)) | {"rank": rank})
    assert decode(forged, RankAnswer) is None
