"""A summary of many ranks says the same whoever made it, in whatever order and tree."""

import random
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forkpoint.guard.messages import (
    Ask,
    Beat,
    Calls,
    GuardStore,
    Identity,
    RankAnswer,
    RankHealth,
    decode,
    decode_ask,
    encode,
)
from forkpoint.guard.summary import Conflict, Leader, Summary, levels_led, merge, without_closed_groups
from forkpoint.report.escape import valid_text
from guard.told import summary_of, told

pytestmark = pytest.mark.torch


def test_ranks_that_agree_have_no_conflict_however_far_apart_they_are() -> None:
    assert summary_of([told(0, 9), told(1, 3), told(2, 7), told(3, 9)]).conflicts == ()


def test_ranks_that_told_different_calls_of_one_seq_are_in_conflict() -> None:
    odd = told(2, tail={1: 101, 2: 102, 3: 999, 4: 104, 5: 105})
    (conflict,) = summary_of([told(0), told(2), odd]).conflicts
    assert (conflict.what, conflict.at, conflict.group) == ("seq", 3, "0#a")


def test_the_same_name_with_other_members_is_another_group() -> None:
    assert not summary_of([told(0), told(1, tail={3: 999}, group="0#b")]).conflicts


@given(st.permutations(range(12)), st.integers(1, 11))
def test_merging_is_the_same_in_any_order_and_tree(order, cut) -> None:
    ranks = [told(r, 3 + r % 3, done=r % 4, still_s=r / 10) for r in range(12)]
    ranks[5] = told(5, state=RankHealth.RAISED, says="ValueError")
    ranks[7] = told(7, tail={1: 101, 2: 555})
    straight = summary_of(ranks)
    parts = [ranks[i] for i in order]
    tree = merge([summary_of(parts[:cut]), summary_of(parts[cut:])])
    assert [(c.what, c.at) for c in tree.conflicts] == [(c.what, c.at) for c in straight.conflicts]
    for name in ("still_s", "waiting", "timeout_s", "waits", "odd"):
        assert getattr(tree, name) == getattr(straight, name)
    assert tree.groups["0#a"].seen == 12


def test_what_a_rank_says_of_itself_counts_more_than_what_its_neighbour_saw() -> None:
    seen = told(1, neighbour=(2, RankHealth.GONE))
    raised = told(2, state=RankHealth.RAISED, says="ValueError: bad")
    (odd,) = summary_of([seen, raised]).odd
    assert odd.state is RankHealth.RAISED


def test_a_group_whose_members_all_lie_below_is_not_told_further() -> None:
    below = summary_of([told(r, size=4) for r in range(4)])
    beyond = summary_of([told(r, size=8, group="1#c") for r in range(4)])
    assert without_closed_groups(below).groups == {}
    assert "1#c" in without_closed_groups(beyond).groups


def test_summaries_and_beats_survive_the_journey() -> None:
    beat, calls = told(3, 9, done=4, steps={7: {"0#a": 9}}, neighbour=(4, RankHealth.STOPPED))
    assert decode(encode(beat), Beat) == beat
    assert decode(encode(calls), Calls) == calls
    whole = summary_of([(beat, calls), told(1)], [1])
    assert decode(encode(whole), Summary) == whole


@given(st.binary(max_size=200) | st.sampled_from([encode(x) for x in ([], None, {"groups": 3, "steps": []})]))
@example(data=b"\x81\xa1x" + 100_000 * b"\x91" + b"\xc0")  # lists in lists, in a field that nobody knows
@example(data=b"\x81\xa4rank\xa1\xff")  # not UTF-8
def test_anything_else_in_the_store_is_ignored(data) -> None:
    for kind in (Beat, Calls, RankAnswer, Identity, Summary):
        assert decode(data, kind) is None
    assert decode_ask(data) == Ask()


class _Written:
    """A store in which anyone may have written."""

    def __init__(self, held: dict[str, object]) -> None:
        self._held = {key: encode(message) for key, message in held.items()}

    def read(self, keys: list[str]) -> list[bytes | None]:
        return [self._held.get(key) for key in keys]


def test_a_beat_under_the_key_of_another_rank_is_not_heard() -> None:
    held: dict[str, object] = {f"beat/{rank}": told(rank, 6, done=5)[0] for rank in range(3)}
    forged = {"beat/3": told(1, 5, state=RankHealth.FINISHED)[0]}
    own = {"beat/3": told(3, 5, state=RankHealth.FINISHED)[0]}

    def odd(beats: dict[str, object]) -> list[int]:
        leader = Leader(0, 4, cast(GuardStore, _Written(held | beats)), 1.0)
        return [one.rank for one in leader.gather().odd]

    assert odd(forged) == []
    assert odd(own) == [3]


def test_a_text_that_is_not_utf8_still_travels() -> None:
    beat, _ = told(3, says=valid_text("No such file: weights-\udcff.bin"))
    assert decode(encode(beat), Beat) == beat
    assert beat.says == r"No such file: weights-\udcff.bin"


def test_steps_are_compared_where_both_ranks_told_them() -> None:
    ranks = [told(r, steps={6: {"0#a": 40}, 7: {"0#a": 44}}) for r in range(3)]
    ranks.append(told(3, steps={7: {"0#a": 43}}))
    (conflict,) = summary_of(ranks).conflicts
    assert (conflict.what, conflict.at) == ("step", 7)
    assert 3 in conflict.ranks


def test_every_rank_has_exactly_one_leader_on_every_level_and_rank_zero_leads_all() -> None:
    for world in (1, 4, 64, 65, 10_000, 100_000):
        led = {rank: levels_led(rank, world) for rank in range(world)}
        assert led[0] == max(led.values())
        leaders = [sum(1 for levels in led.values() if levels >= level) for level in range(1, led[0] + 1)]
        assert leaders[-1] == 1
        assert leaders[0] == -(-world // 64)


def test_ten_thousand_ranks_make_a_small_summary_that_names_the_one_that_differs() -> None:
    """Through the real tree: leaders of 64, and leaders of those. Each rank is in the world and in a pair."""
    random.seed(1)
    branches = []
    for first in range(0, 10_000, 64):
        members = range(first, min(first + 64, 10_000))
        ranks = [told(r, 60, tail={s: s for s in range(1, 61)}, size=10_000) for r in members]
        if 7777 in members:
            ranks[7777 - first] = told(7777, 60, tail={s: s + (s == 33) for s in range(1, 61)}, size=10_000)
        branches.append(encode(without_closed_groups(summary_of(ranks))))
    top = merge([part for data in branches if (part := decode(data, Summary))])
    assert top.groups["0#a"].seen == 10_000
    assert isinstance(top.conflicts[0], Conflict)
    assert 7777 in {r for c in top.conflicts for r in c.ranks}
    assert max(map(len, branches)) < 4096
    assert len(encode(without_closed_groups(top))) < 4096
